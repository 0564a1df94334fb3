#include "number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <system_error>

#include "ascii.h"
#include "json.h"

namespace stoker {

namespace {

std::size_t digits_from(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

char char_at(std::string_view text, std::size_t at) { return at < text.size() ? text[at] : '\0'; }

Number faulty(const char* fault) { return {{}, false, fault}; }

/// For `from_chars` calls what is too small "out of range" as well, and says no more; `strtod` tells the two apart.
/// The program never sets a locale, so the decimal point is a point.
double to_double_slowly(std::string_view number) { return std::strtod(std::string(number).c_str(), nullptr); }

/// A number shorter than this without an exponent is below 1e300.
constexpr std::size_t surely_in_range = 300;

/// Digits and exponent of the shortest decimal that reads back as the same double: 1.25e-7 is "125" and -7.
struct Shortest {
  std::string digits;
  int exponent = 0;
};

Shortest shortest(double magnitude) {
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = text.find('e');
  Shortest result;
  for (const char c : text.substr(0, e)) {
    if (c != '.') result.digits.push_back(c);
  }
  result.exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  return result;
}

std::string with_exponent(const Shortest& value) {
  std::string out(1, value.digits[0]);
  if (value.digits.size() > 1) out += "." + value.digits.substr(1);
  return out + "e" + std::to_string(value.exponent);
}

std::string without_exponent(const Shortest& value) {
  const int before_point = value.exponent + 1;
  if (before_point <= 0) return "0." + std::string(static_cast<std::size_t>(-before_point), '0') + value.digits;
  const auto whole = static_cast<std::size_t>(before_point);
  if (value.digits.size() <= whole) return value.digits + std::string(whole - value.digits.size(), '0') + ".0";
  return value.digits.substr(0, whole) + "." + value.digits.substr(whole);
}

}  // namespace

Number scan_number(std::string_view text) {
  std::size_t at = char_at(text, 0) == '-' ? 1 : 0;
  const std::size_t whole = digits_from(text, at);
  if (whole == 0) return faulty("an unexpected character");
  if (whole > 1 && text[at] == '0') return faulty("a number with a leading zero");
  at += whole;
  std::size_t digits = whole;
  bool integral = true;
  if (char_at(text, at) == '.') {
    const std::size_t fraction = digits_from(text, at + 1);
    if (fraction == 0) return faulty("a number without digits after its point");
    at += 1 + fraction;
    digits += fraction;
    integral = false;
  }
  if (char_at(text, at) == 'e' || char_at(text, at) == 'E') {
    ++at;
    if (char_at(text, at) == '+' || char_at(text, at) == '-') ++at;
    const std::size_t exponent = digits_from(text, at);
    if (exponent == 0) return faulty("a number without digits in its exponent");
    at += exponent;
    digits += exponent;
    integral = false;
  }
  if (digits > json::max_digits) return faulty("a number of more than 1000 digits");
  return {text.substr(0, at), integral, nullptr};
}

double to_double(std::string_view number) {
#if defined(__cpp_lib_to_chars)
  double value = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end.ec == std::errc()) return value;
#endif
  return to_double_slowly(number);
}

bool in_range(std::string_view number) {
  if (number.size() < surely_in_range && number.find_first_of("eE") == std::string_view::npos) return true;
  return std::isfinite(to_double(number));
}

std::string real_to_text(double value) {
  const std::string sign = std::signbit(value) ? "-" : "";
  if (value == 0) return sign + "0.0";
  const Shortest digits = shortest(std::fabs(value));
  const bool plain = digits.exponent >= -5 && digits.exponent <= 15;
  return sign + (plain ? without_exponent(digits) : with_exponent(digits));
}

}  // namespace stoker
