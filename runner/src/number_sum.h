#pragma once

/// Adding up JSON numbers. The rule, which `stoker.executors.builtins.numbers` follows as well:
///
/// - if all are integers, the sum is exact, however large (up to the 1,000 digits that a number may have);
/// - if one is not, each is taken as the nearest double, and the exact sum of those is rounded once (`math.fsum`).
///
/// So the result depends neither on the order nor on the number of threads. A sum that no double can hold, or of more
/// than 1,000 digits, is refused.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "decimal.h"
#include "exact_sum.h"
#include "number.h"

namespace stoker {

class NumberSum {
 public:
  /// Add the number that `text` begins with; its length, or 0 when there is none or it is out of bounds.
  std::size_t add_first(std::string_view text);
  void add(const NumberSum& other);
  /// As JSON; refuses what is out of range.
  std::string to_json() const;

 private:
  std::size_t add_scanned(const Number& number);
  void add_integer(std::int64_t value);
  void add_long_integer(std::string_view text);
  void add_real(double value);
  double real_total() const;

  // Integers that are doubles as well: in a sum of doubles they count as what they are.
  Int128 exact_ = 0;
  // Larger ones are kept twice: as they are, and, in `real_`, as the nearest doubles.
  Int128 wide_ = 0;
  Decimal long_;
  ExactSum real_;
  bool has_real_ = false;
  bool has_huge_ = false;  // an integer beyond all doubles
};

/// The sum of the numbers in a JSON array, read and added up by up to `threads` threads at once. `field` is what
/// messages call it.
NumberSum sum_array(std::string_view array, std::string_view field, unsigned threads);

}  // namespace stoker
