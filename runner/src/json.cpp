#include "json.h"

#include <array>
#include <cstring>

#include "ascii.h"
#include "failure.h"
#include "number.h"
#include "utf8.h"

namespace stoker::json {

namespace {

constexpr std::array<bool, 256> make_plain() {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}

/// Bytes that stand for themselves inside a string: most of them, so they are told apart by one look-up.
constexpr std::array<bool, 256> plain_bytes = make_plain();

bool is_plain(char c) { return plain_bytes[static_cast<unsigned char>(c)]; }

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::null: return "null";
    case Kind::boolean: return "a boolean";
    case Kind::integer: return "an integer";
    case Kind::real: return "a number with a fraction or exponent";
    case Kind::string: return "a string";
    case Kind::array: return "an array";
    case Kind::object: return "an object";
  }
  return "something else";
}

void Scanner::malformed(const char* what) const {
  refuse(std::string("the payload is not valid JSON: ") + what + " at byte " + std::to_string(at_));
}

void Scanner::skip_space() {
  while (!at_end() && is_space(text_[at_])) ++at_;
}

bool Scanner::take(char wanted) {
  skip_space();
  if (peek() != wanted || at_end()) return false;
  ++at_;
  skip_space();
  return true;
}

void Scanner::expect(char wanted) {
  if (take(wanted)) return;
  const char what[] = {'e', 'x', 'p', 'e', 'c', 't', 'e', 'd', ' ', '\'', wanted, '\'', '\0'};
  malformed(what);
}

void Scanner::expect_end() {
  skip_space();
  if (!at_end()) malformed("something follows the value");
}

Value Scanner::skip_value(std::size_t depth) {
  skip_space();
  const std::size_t start = at_;
  const Kind kind = skip(depth);
  return {kind, text_.substr(start, at_ - start)};
}

Value Scanner::skip_unread_array() {
  skip_space();
  const std::size_t start = at_;
  const void* found = std::memchr(text_.data() + at_, ']', text_.size() - at_);
  if (found == nullptr) malformed("an array that does not end");
  at_ = static_cast<std::size_t>(static_cast<const char*>(found) - text_.data()) + 1;
  return {Kind::array, text_.substr(start, at_ - start)};
}

Kind Scanner::skip(std::size_t depth) {
  switch (peek()) {
    case '{': skip_object(depth + 1); return Kind::object;
    case '[': skip_array(depth + 1); return Kind::array;
    case '"': scan_string(nullptr); return Kind::string;
    case 't': skip_word("true"); return Kind::boolean;
    case 'f': skip_word("false"); return Kind::boolean;
    case 'n': skip_word("null"); return Kind::null;
    default: return skip_number();
  }
}

void Scanner::skip_array(std::size_t depth) {
  if (depth > max_depth) malformed("more than 256 levels of nesting");
  expect('[');
  if (take(']')) return;
  do {
    skip(depth);
  } while (take(','));
  skip_space();
  if (peek() != ']') malformed("expected ',' or ']'");
  ++at_;
}

void Scanner::skip_object(std::size_t depth) {
  if (depth > max_depth) malformed("more than 256 levels of nesting");
  expect('{');
  if (take('}')) return;
  do {
    scan_string(nullptr);
    expect(':');
    skip(depth);
  } while (take(','));
  skip_space();
  if (peek() != '}') malformed("expected ',' or '}'");
  ++at_;
}

void Scanner::skip_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) malformed("an unknown word");
  at_ += word.size();
}

Kind Scanner::skip_number() {
  const Number number = scan_number(text_.substr(at_));
  if (number.fault != nullptr) malformed(number.fault);
  if (!number.integral && !in_range(number.text)) malformed("a number out of range");
  at_ += number.text.size();
  return number.integral ? Kind::integer : Kind::real;
}

std::string Scanner::read_string() {
  std::string out;
  scan_string(&out);
  return out;
}

void Scanner::scan_string(std::string* out) {
  if (peek() != '"') malformed("expected a string");
  ++at_;
  while (true) {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    if (out != nullptr) out->append(text_, start, at_ - start);
    if (at_end()) malformed("a string that does not end");
    if (text_[at_] == '"') break;
    if (text_[at_] == '\\') {
      scan_escape(out);
    } else {
      scan_character(out);
    }
  }
  ++at_;
}

void Scanner::scan_character(std::string* out) {
  if (static_cast<unsigned char>(text_[at_]) < 0x20) malformed("a control character in a string");
  const std::size_t length = utf8::length_at(text_, at_);
  if (length == 0) malformed("invalid UTF-8");
  if (out != nullptr) out->append(text_, at_, length);
  at_ += length;
}

void Scanner::scan_escape(std::string* out) {
  static constexpr std::string_view letters = "\"\\/bfnrt";
  static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  ++at_;
  if (at_end()) malformed("a string that does not end");
  if (text_[at_] == 'u') {
    ++at_;
    const char32_t character = scan_escaped_character();
    if (out != nullptr) utf8::append(*out, character);
    return;
  }
  const std::size_t which = letters.find(text_[at_]);
  if (which == std::string_view::npos) malformed("an unknown escape");
  if (out != nullptr) out->push_back(meanings[which]);
  ++at_;
}

char32_t Scanner::scan_escaped_character() {
  const unsigned unit = scan_hex4();
  if (unit < 0xD800 || unit > 0xDFFF) return unit;
  if (unit > 0xDBFF || text_.substr(at_, 2) != "\\u") malformed("a lone surrogate");
  at_ += 2;
  const unsigned low = scan_hex4();
  if (low < 0xDC00 || low > 0xDFFF) malformed("a lone surrogate");
  return 0x10000U + ((unit - 0xD800U) << 10) + (low - 0xDC00U);
}

unsigned Scanner::scan_hex4() {
  static constexpr std::string_view digits = "0123456789abcdef";
  unsigned value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    if (at_end()) malformed("a cut-off escape");
    const char c = text_[at_];
    const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c + ('a' - 'A')) : c;
    const std::size_t digit = digits.find(lower);
    if (digit == std::string_view::npos) malformed("an escape that is not hexadecimal");
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return value;
}

void check(std::string_view text) {
  Scanner scanner(text);
  scanner.skip_value();
  scanner.expect_end();
}

}  // namespace stoker::json
