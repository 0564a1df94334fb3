#pragma once

#include <string>
#include <string_view>

namespace stoker {

/// A number as JSON writes it. `fault` is null, or says what is wrong; then the rest means nothing.
struct Number {
  std::string_view text;
  bool integral = true;
  const char* fault = nullptr;
};

/// The number that `text` begins with.
Number scan_number(std::string_view text);

/// The nearest double, ties to even, of a number that `scan_number` accepted. Infinite when it is out of range.
double to_double(std::string_view number);

/// Whether a number is within the range of a double; cheap for all but the very large and very long.
bool in_range(std::string_view number);

/// The shortest text that reads back as the same double, laid out as the Python runner's encoder does it.
std::string real_to_text(double value);

}  // namespace stoker
