#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stoker {

__extension__ using Int128 = __int128;

/// An integer of any size that can be added up. It is kept in base 10^9, because all it ever does is come from
/// decimal text and go back to it.
class Decimal {
 public:
  Decimal() = default;
  /// `text`: an optional minus and digits.
  explicit Decimal(std::string_view text);
  explicit Decimal(Int128 value);

  void add(const Decimal& other);
  std::string to_text() const;

 private:
  using Limbs = std::vector<std::uint32_t>;

  static int compare(const Limbs& a, const Limbs& b);
  static void add_to(Limbs& a, const Limbs& b);
  /// a - b, where a is not smaller.
  static Limbs difference(const Limbs& a, const Limbs& b);
  static void trim(Limbs& limbs);

  Limbs limbs_;  // the smallest first, no leading zeros; empty is zero
  bool negative_ = false;
};

}  // namespace stoker
