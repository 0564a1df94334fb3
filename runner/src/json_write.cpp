#include "json_write.h"

#include <utility>

#include "number.h"

namespace stoker::json {

namespace {

void append_control(std::string& out, unsigned char c) {
  static constexpr std::string_view digits = "0123456789abcdef";
  switch (c) {
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  out += "\\u00";
  out.push_back(digits[c >> 4]);
  out.push_back(digits[c & 0xFU]);
}

bool needs_escape(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }

void append_escaped(std::string& out, char c) {
  if (c == '"' || c == '\\') {
    out.push_back('\\');
    out.push_back(c);
  } else {
    append_control(out, static_cast<unsigned char>(c));
  }
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out.reserve(out.size() + text.size() + 2);
  out.push_back('"');
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!needs_escape(text[i])) continue;
    out.append(text, start, i - start);
    append_escaped(out, text[i]);
    start = i + 1;
  }
  out.append(text, start);
  out.push_back('"');
}

void ObjectWriter::begin(std::string_view field) {
  if (out_.size() > 1) out_.push_back(',');
  append_quoted(out_, field);
  out_.push_back(':');
}

ObjectWriter& ObjectWriter::text(std::string_view field, std::string_view value) {
  begin(field);
  append_quoted(out_, value);
  return *this;
}

ObjectWriter& ObjectWriter::integer(std::string_view field, std::uint64_t value) {
  return raw(field, std::to_string(value));
}

ObjectWriter& ObjectWriter::real(std::string_view field, double value) { return raw(field, real_to_text(value)); }

ObjectWriter& ObjectWriter::raw(std::string_view field, std::string_view json) {
  begin(field);
  out_ += json;
  return *this;
}

std::string ObjectWriter::finish() {
  out_.push_back('}');
  return std::move(out_);
}

}  // namespace stoker::json
