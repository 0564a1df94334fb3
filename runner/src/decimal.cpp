#include "decimal.h"

#include <algorithm>
#include <utility>

namespace stoker {

namespace {

constexpr std::uint32_t base = 1'000'000'000;
constexpr std::size_t base_digits = 9;

std::uint32_t limb_of(std::string_view digits) {
  std::uint32_t value = 0;
  for (const char c : digits) value = value * 10 + static_cast<std::uint32_t>(c - '0');
  return value;
}

}  // namespace

Decimal::Decimal(std::string_view text) : negative_(!text.empty() && text[0] == '-') {
  std::string_view digits = text.substr(negative_ ? 1 : 0);
  limbs_.reserve(digits.size() / base_digits + 1);
  while (!digits.empty()) {
    const std::size_t from = digits.size() > base_digits ? digits.size() - base_digits : 0;
    limbs_.push_back(limb_of(digits.substr(from)));
    digits = digits.substr(0, from);
  }
  trim(limbs_);
}

Decimal::Decimal(Int128 value) : negative_(value < 0) {
  // Taken digit by digit with its sign: the smallest value has no positive counterpart.
  for (; value != 0; value /= base) {
    const auto limb = static_cast<std::int64_t>(value % base);
    limbs_.push_back(static_cast<std::uint32_t>(limb < 0 ? -limb : limb));
  }
}

void Decimal::trim(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
}

int Decimal::compare(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

void Decimal::add_to(Limbs& a, const Limbs& b) {
  a.resize(std::max(a.size(), b.size()) + 1);
  std::uint32_t carry = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint32_t sum = a[i] + carry + (i < b.size() ? b[i] : 0);
    carry = sum >= base ? 1 : 0;
    a[i] = sum - carry * base;
  }
  trim(a);
}

Decimal::Limbs Decimal::difference(const Limbs& a, const Limbs& b) {
  Limbs result(a.size());
  std::uint32_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint32_t less = (i < b.size() ? b[i] : 0) + borrow;
    borrow = a[i] < less ? 1 : 0;
    result[i] = a[i] + borrow * base - less;
  }
  trim(result);
  return result;
}

void Decimal::add(const Decimal& other) {
  if (negative_ == other.negative_) {
    add_to(limbs_, other.limbs_);
  } else if (compare(limbs_, other.limbs_) >= 0) {
    limbs_ = difference(limbs_, other.limbs_);
  } else {
    limbs_ = difference(other.limbs_, limbs_);
    negative_ = other.negative_;
  }
  if (limbs_.empty()) negative_ = false;
}

std::string Decimal::to_text() const {
  if (limbs_.empty()) return "0";
  std::string out = (negative_ ? "-" : "") + std::to_string(limbs_.back());
  for (std::size_t i = limbs_.size() - 1; i-- > 0;) {
    const std::string limb = std::to_string(limbs_[i]);
    out.append(base_digits - limb.size(), '0').append(limb);
  }
  return out;
}

}  // namespace stoker
