#include "number_sum.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

#include "ascii.h"
#include "failure.h"
#include "json.h"
#include "spread.h"

namespace stoker {

namespace {

constexpr std::int64_t largest_exact = std::int64_t{1} << 53;
constexpr std::size_t short_digits = 18;  // always fit 63 bits
constexpr std::size_t worth_a_thread_bytes = 64 * 1024;
constexpr std::size_t parts_per_thread = 8;  // so that a thread that is held up does not hold up the others

/// Powers of ten that are doubles.
constexpr std::array<double, 23> tens = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                         1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/// A number of few digits and without exponent, as nearly all are; `length` is 0 for any other, and for what is
/// no number at all.
struct ShortNumber {
  std::size_t length = 0;
  std::int64_t digits = 0;
  std::size_t after_point = 0;
  bool negative = false;
};

/// Take digits into `value`, at most as many as surely fit; how many there were.
std::size_t take_digits(std::string_view text, std::size_t at, std::size_t room, std::int64_t& value) {
  std::size_t count = 0;
  for (; count < room && at + count < text.size() && is_digit(text[at + count]); ++count) {
    value = value * 10 + (text[at + count] - '0');
  }
  return count;
}

bool goes_on(std::string_view text, std::size_t at) {
  return at < text.size() && (is_digit(text[at]) || text[at] == '.' || text[at] == 'e' || text[at] == 'E');
}

ShortNumber read_short(std::string_view text) {
  ShortNumber number;
  number.negative = !text.empty() && text[0] == '-';
  std::size_t at = number.negative ? 1 : 0;
  const std::size_t whole = take_digits(text, at, short_digits, number.digits);
  if (whole == 0 || (whole > 1 && text[at] == '0')) return {};
  at += whole;
  if (at < text.size() && text[at] == '.') {
    number.after_point = take_digits(text, at + 1, short_digits - whole, number.digits);
    if (number.after_point == 0) return {};
    at += 1 + number.after_point;
  }
  if (goes_on(text, at)) return {};
  number.length = at;
  return number;
}

/// Both operands are doubles, so the quotient is rounded once, which makes it the nearest double to the text.
bool converts_exactly(const ShortNumber& number) {
  return number.digits <= largest_exact && number.after_point < tens.size();
}

double real_of(const ShortNumber& number) {
  const double magnitude = static_cast<double>(number.digits) / tens[number.after_point];
  return number.negative ? -magnitude : magnitude;
}

void add_exactly(ExactSum& sum, Int128 value) {
  double scale = 1;
  for (; value != 0; value /= Int128{1} << 32) {
    const auto part = static_cast<std::int64_t>(value % (Int128{1} << 32));
    sum.add(static_cast<double>(part) * scale);
    scale *= 4294967296.0;
  }
}

[[noreturn]] void refuse_sum(const char* why) { refuse(std::string("the sum ") + why); }

std::size_t after_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

/// The numbers between two commas, or between a comma and the array's end.
class Part {
 public:
  Part(std::string_view all, std::size_t from, std::size_t to) : all_(all), from_(from), to_(to) {}

  NumberSum sum(std::string_view field) const {
    const std::string_view text = all_.substr(0, to_);
    NumberSum total;
    std::size_t at = from_;
    while (true) {
      at = after_space(text, at);
      const std::size_t length = total.add_first(text.substr(at));
      if (length == 0) refuse_at(at, field);
      at = after_space(text, at + length);
      if (at == text.size()) return total;
      if (text[at] != ',') refuse_at(at, field);
      ++at;
    }
  }

 private:
  /// All before is numbers, or an earlier part would have failed, so commas tell the index.
  [[noreturn]] void refuse_at(std::size_t at, std::string_view field) const {
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(at);
    const auto index = std::count(all_.begin(), end, ',');
    refuse(std::string(field) + "[" + std::to_string(index) + "] is not a number that can be added");
  }

  std::string_view all_;
  std::size_t from_;
  std::size_t to_;
};

std::vector<Part> split_at_commas(std::string_view numbers, std::size_t parts) {
  std::vector<Part> result;
  std::size_t from = 0;
  for (std::size_t i = 1; i < parts; ++i) {
    const std::size_t comma = numbers.find(',', std::max(from, numbers.size() / parts * i));
    if (comma == std::string_view::npos) break;
    result.emplace_back(numbers, from, comma);
    from = comma + 1;
  }
  result.emplace_back(numbers, from, numbers.size());
  return result;
}

}  // namespace

std::size_t NumberSum::add_first(std::string_view text) {
  const ShortNumber number = read_short(text);
  if (number.length == 0) return add_scanned(scan_number(text));
  if (number.after_point == 0) {
    add_integer(number.negative ? -number.digits : number.digits);
  } else if (converts_exactly(number)) {
    add_real(real_of(number));
  } else {
    add_real(to_double(text.substr(0, number.length)));
  }
  return number.length;
}

std::size_t NumberSum::add_scanned(const Number& number) {
  if (number.fault != nullptr) return 0;
  if (number.integral) {
    add_long_integer(number.text);
    return number.text.size();
  }
  const double value = to_double(number.text);
  if (!std::isfinite(value)) return 0;
  add_real(value);
  return number.text.size();
}

void NumberSum::add_integer(std::int64_t value) {
  if (value >= -largest_exact && value <= largest_exact) {
    exact_ += value;
    return;
  }
  wide_ += value;
  real_.add(static_cast<double>(value));
}

void NumberSum::add_long_integer(std::string_view text) {
  std::int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc()) {
    add_integer(value);
    return;
  }
  long_.add(Decimal(text));
  const double nearest = to_double(text);
  if (std::isfinite(nearest)) {
    real_.add(nearest);
  } else {
    has_huge_ = true;
  }
}

void NumberSum::add_real(double value) {
  has_real_ = true;
  real_.add(value);
}

void NumberSum::add(const NumberSum& other) {
  exact_ += other.exact_;
  wide_ += other.wide_;
  long_.add(other.long_);
  real_.add(other.real_);
  has_real_ = has_real_ || other.has_real_;
  has_huge_ = has_huge_ || other.has_huge_;
}

double NumberSum::real_total() const {
  if (has_huge_) refuse_sum("has an integer among its reals that is out of the range of a double");
  ExactSum total = real_;
  add_exactly(total, exact_);
  const double rounded = total.rounded();
  if (!std::isfinite(rounded)) refuse_sum("is out of the range of a double");
  return rounded;
}

std::string NumberSum::to_json() const {
  if (has_real_) return real_to_text(real_total());
  Decimal total(exact_);
  total.add(Decimal(wide_));
  total.add(long_);
  std::string text = total.to_text();
  if (text.size() - (text[0] == '-' ? 1 : 0) > json::max_digits) refuse_sum("has more than 1000 digits");
  return text;
}

NumberSum sum_array(std::string_view array, std::string_view field, unsigned threads) {
  const std::string_view numbers = array.substr(1, array.size() - 2);
  NumberSum total;
  if (after_space(numbers, 0) == numbers.size()) return total;
  const std::size_t worth = std::max<std::size_t>(1, numbers.size() / worth_a_thread_bytes);
  const std::size_t wanted = threads == 1 ? 1 : threads * parts_per_thread;
  const std::vector<Part> parts = split_at_commas(numbers, std::min(wanted, worth));
  std::vector<NumberSum> sums(parts.size());
  spread(parts.size(), threads, [&](std::size_t i) { sums[i] = parts[i].sum(field); });
  for (const NumberSum& sum : sums) total.add(sum);
  return total;
}

}  // namespace stoker
