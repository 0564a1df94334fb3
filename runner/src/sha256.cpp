#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace stoker {

namespace {

constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotate_right(std::uint32_t x, unsigned by) { return (x >> by) | (x << (32 - by)); }

std::uint32_t load_big_endian(const unsigned char* from) {
  return (std::uint32_t{from[0]} << 24) | (std::uint32_t{from[1]} << 16) | (std::uint32_t{from[2]} << 8) | from[3];
}

void store_big_endian(unsigned char* to, std::uint32_t value) {
  to[0] = static_cast<unsigned char>(value >> 24);
  to[1] = static_cast<unsigned char>(value >> 16);
  to[2] = static_cast<unsigned char>(value >> 8);
  to[3] = static_cast<unsigned char>(value);
}

std::array<std::uint32_t, 64> schedule(const unsigned char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

}  // namespace

void Sha256::compress(State& state, const unsigned char* block) {
  const std::array<std::uint32_t, 64> w = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    const std::uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

void Sha256::update(const void* data, std::size_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  total_ += size;
  if (pending_size_ > 0) {
    const std::size_t taken = std::min(size, block_bytes - pending_size_);
    std::copy_n(from, taken, pending_.begin() + static_cast<std::ptrdiff_t>(pending_size_));
    pending_size_ += taken;
    from += taken;
    size -= taken;
    if (pending_size_ < block_bytes) return;
    compress(state_, pending_.data());
    pending_size_ = 0;
  }
  for (; size >= block_bytes; from += block_bytes, size -= block_bytes) compress(state_, from);
  std::copy_n(from, size, pending_.begin());
  pending_size_ = size;
}

Sha256::Digest Sha256::finish() {
  const std::uint64_t bits = total_ * 8;
  static constexpr std::array<unsigned char, block_bytes> padding = {0x80};
  // One 1 bit, then zeros up to the last eight bytes of a block, which hold the length.
  const std::size_t room = pending_size_ < 56 ? 56 : 56 + block_bytes;
  update(padding.data(), room - pending_size_);
  std::array<unsigned char, 8> length{};
  store_big_endian(length.data(), static_cast<std::uint32_t>(bits >> 32));
  store_big_endian(length.data() + 4, static_cast<std::uint32_t>(bits));
  update(length.data(), length.size());
  return big_endian(state_);
}

Sha256::Digest Sha256::big_endian(const State& state) {
  Digest digest{};
  for (std::size_t i = 0; i < state.size(); ++i) store_big_endian(digest.data() + 4 * i, state[i]);
  return digest;
}

Sha256::Digest Sha256::of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

Sha256::Digest Sha256::repeat(Digest digest, std::uint64_t times) {
  // 32 bytes and their padding are always one block, of which only the first half changes.
  std::array<unsigned char, block_bytes> block{};
  block[32] = 0x80;
  block[62] = 1;  // a length of 256 bits
  for (; times > 0; --times) {
    std::copy(digest.begin(), digest.end(), block.begin());
    State state = initial;
    compress(state, block.data());
    digest = big_endian(state);
  }
  return digest;
}

std::string to_hex(const Sha256::Digest& digest) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : digest) {
    out.push_back(digits[byte >> 4]);
    out.push_back(digits[byte & 0xFU]);
  }
  return out;
}

}  // namespace stoker
