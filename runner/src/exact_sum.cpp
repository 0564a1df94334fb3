#include "exact_sum.h"

#include <cmath>
#include <cstring>

namespace stoker {

namespace {

constexpr int word_bits = 32;
constexpr std::int64_t word_mask = 0xFFFFFFFF;
constexpr std::uint32_t settle_after = 1U << 30;
constexpr int smallest_exponent = -1074;
constexpr int mantissa_bits = 53;

/// The bit at position `at` of settled, positive words.
template <class Words>
bool bit(const Words& sum, int at) {
  return ((sum[static_cast<std::size_t>(at / word_bits)] >> (at % word_bits)) & 1) != 0;
}

template <class Words>
int highest_bit(const Words& sum) {
  for (int at = static_cast<int>(sum.size()) * word_bits - 1; at >= 0; --at) {
    if (bit(sum, at)) return at;
  }
  return -1;
}

template <class Words>
bool any_bit_below(const Words& sum, int end) {
  for (int at = 0; at < end; ++at) {
    if (bit(sum, at)) return true;
  }
  return false;
}

/// The double nearest to settled, positive words.
template <class Words>
double round_magnitude(const Words& sum) {
  const int top = highest_bit(sum);
  if (top < 0) return 0;
  const int lowest = top >= mantissa_bits ? top - mantissa_bits + 1 : 0;
  std::int64_t mantissa = 0;
  for (int at = top; at >= lowest; --at) mantissa = mantissa * 2 + (bit(sum, at) ? 1 : 0);
  const bool half = lowest > 0 && bit(sum, lowest - 1);
  if (half && ((mantissa & 1) != 0 || any_bit_below(sum, lowest - 1))) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), lowest + smallest_exponent);
}

}  // namespace

void ExactSum::add(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const auto exponent = static_cast<int>((bits >> 52) & 0x7FFU);
  const std::uint64_t fraction = bits & 0xFFFFFFFFFFFFFU;
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | (std::uint64_t{1} << 52);
  const int position = exponent == 0 ? 0 : exponent - 1;
  const auto word = static_cast<std::size_t>(position / word_bits);
  const int shift = position % word_bits;
  // The mantissa, shifted into place, reaches over three words.
  const auto low = static_cast<std::int64_t>(mantissa << shift) & word_mask;
  const auto middle = static_cast<std::int64_t>(mantissa >> (word_bits - shift)) & word_mask;
  const auto high = static_cast<std::int64_t>(mantissa >> word_bits >> (word_bits - shift));
  // x ^ -1 - -1 is -x: the sign without a branch, because the signs of data are hard to predict.
  const std::int64_t sign = -static_cast<std::int64_t>(bits >> 63);
  sum_[word] += (low ^ sign) - sign;
  sum_[word + 1] += (middle ^ sign) - sign;
  sum_[word + 2] += (high ^ sign) - sign;
  if (++unsettled_ == settle_after) settle();
}

void ExactSum::add(const ExactSum& other) {
  settle();
  ExactSum copy = other;
  copy.settle();
  for (std::size_t i = 0; i < words; ++i) sum_[i] += copy.sum_[i];
  settle();
}

void ExactSum::carry(Words& sum) {
  for (std::size_t i = 0; i + 1 < words; ++i) {
    const std::int64_t low = sum[i] & word_mask;
    sum[i + 1] += (sum[i] - low) / (word_mask + 1);
    sum[i] = low;
  }
}

void ExactSum::settle() {
  carry(sum_);
  unsettled_ = 0;
}

double ExactSum::rounded() const {
  Words sum = sum_;
  carry(sum);
  if (sum[words - 1] >= 0) return round_magnitude(sum);
  for (std::int64_t& word : sum) word = -word;
  carry(sum);
  return -round_magnitude(sum);
}

}  // namespace stoker
