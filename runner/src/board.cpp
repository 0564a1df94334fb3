#include "board.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/mman.h>
#include <system_error>

namespace stoker {

namespace {

constexpr std::size_t page_bytes = 4096;

// Eight bytes each, in this order: `struct <qqdqq`.
constexpr std::size_t running = 0;
constexpr std::size_t busy = 1;
constexpr std::size_t started = 2;
constexpr std::size_t skip_from = 3;
constexpr std::size_t skip_to = 4;

// The builtins, not std::atomic: that would have to be constructed in the page, which another process made.
void store(std::int64_t* word, std::int64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
std::int64_t load(const std::int64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

}  // namespace

Board::Board(int fd) {
  void* page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map the board");
  words_ = static_cast<std::int64_t*>(page);
}

Board::~Board() {
  if (words_ != nullptr) ::munmap(words_, page_bytes);
}

bool Board::start(std::uint64_t index, double now) {
  if (words_ == nullptr) return true;
  const auto number = static_cast<std::int64_t>(index);
  std::int64_t now_bits = 0;
  std::memcpy(&now_bits, &now, sizeof now_bits);
  // `started` goes first: whoever reads between two of these writes must never see a job that is busy since the start
  // of another one, and kill it for that.
  store(words_ + started, now_bits);
  store(words_ + running, number);
  store(words_ + busy, 1);
  // What we announced must be seen by all before we look at the range, or both sides could miss each other.
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  const bool taken_back = load(words_ + skip_from) <= number && number < load(words_ + skip_to);
  if (taken_back) stop();
  return !taken_back;
}

void Board::stop() {
  if (words_ != nullptr) store(words_ + busy, 0);
}

}  // namespace stoker
