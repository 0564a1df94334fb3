#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stoker {

/// A sum of doubles without any rounding until the end, so that neither their order nor their grouping matters:
/// threads may share the work and the result is the same to the last bit. It equals Python's `math.fsum`.
///
/// It is one wide fixed-point number that spans all doubles, down to the smallest subnormal, kept as signed words
/// of 32 bits with room for the carries of 2^30 additions (after R. Neal, "Fast exact summation using small and
/// large superaccumulators", 2015). Adding costs three integer additions, whatever the numbers.
class ExactSum {
 public:
  /// `value` must be finite.
  void add(double value);
  void add(const ExactSum& other);
  /// The nearest double, ties to even; infinite if the sum is out of range. Zero is always positive.
  double rounded() const;

 private:
  static constexpr std::size_t words = 70;  // 2,098 bits for the doubles, the rest for the growth of sums
  using Words = std::array<std::int64_t, words>;

  void settle();
  static void carry(Words& sum);

  Words sum_{};
  std::uint32_t unsettled_ = 0;
};

}  // namespace stoker
