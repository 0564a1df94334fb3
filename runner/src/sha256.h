#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stoker {

/// SHA-256, FIPS 180-4.
class Sha256 {
 public:
  using Digest = std::array<unsigned char, 32>;

  void update(const void* data, std::size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  void update(const Digest& digest) { update(digest.data(), digest.size()); }
  Digest finish();

  static Digest of(std::string_view text);
  /// The digest of a digest, `times` times over.
  static Digest repeat(Digest digest, std::uint64_t times);

 private:
  static constexpr std::size_t block_bytes = 64;
  using State = std::array<std::uint32_t, 8>;

  static void compress(State& state, const unsigned char* block);
  static Digest big_endian(const State& state);
  static constexpr State initial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

  State state_ = initial;
  std::array<unsigned char, block_bytes> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t total_ = 0;
};

std::string to_hex(const Sha256::Digest& digest);

}  // namespace stoker
