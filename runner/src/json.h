#pragma once

/// Reading JSON as RFC 8259 has it and nothing more, without ever building a tree.
///
/// No job type takes nested data except one array of numbers, so a payload is read as a flat list of fields
/// (fields.h) and whatever is nested is only checked. The bounds are those of the REST API: nesting of 256,
/// 1,000 digits in a number, reals within the range of a double, strict UTF-8, no lone surrogates. Whatever
/// breaks a rule is refused (`Failure`, not retryable) with the byte at which it was found.

#include <cstddef>
#include <string>
#include <string_view>

namespace stoker::json {

constexpr std::size_t max_depth = 256;
constexpr std::size_t max_digits = 1000;

enum class Kind { null, boolean, integer, real, string, array, object };

/// "an array", "a string": for messages.
const char* name_of(Kind kind);

/// A value as it stands in the text.
struct Value {
  Kind kind = Kind::null;
  std::string_view raw;
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::size_t position() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  /// The next byte, or NUL at the end; a NUL is never valid where this is asked.
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  void skip_space();
  /// Take this character and the space around it, if it comes next.
  bool take(char wanted);
  void expect(char wanted);
  void expect_end();

  /// Check the value that comes next and step over it.
  /// `depth` is the nesting around it.
  Value skip_value(std::size_t depth = 0);
  /// The text of the string that comes next, escapes resolved.
  std::string read_string();
  /// Step over an array of numbers without looking at them: up to the first `]`, which is its end unless the
  /// array holds something else, which whoever reads the numbers will notice.
  Value skip_unread_array();

  [[noreturn]] void malformed(const char* what) const;

 private:
  Kind skip(std::size_t depth);
  void skip_array(std::size_t depth);
  void skip_object(std::size_t depth);
  void skip_word(std::string_view word);
  Kind skip_number();
  void scan_string(std::string* out);
  void scan_escape(std::string* out);
  char32_t scan_escaped_character();
  unsigned scan_hex4();
  void scan_character(std::string* out);

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Refuse what is not exactly one JSON value.
void check(std::string_view text);

}  // namespace stoker::json
