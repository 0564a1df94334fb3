#pragma once

#include <cstdint>

namespace stoker {

/// The page of memory that a supervisor shares with this process; `stoker.executors.shared_state` has the other side and
/// the reasons. Without one, every job may start.
class Board {
 public:
  Board() = default;
  /// Throws `std::system_error` when the descriptor cannot be mapped.
  explicit Board(int fd);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Mark a job as running; false when it was taken back and must not run.
  bool start(std::uint64_t index, double now);
  void stop();

 private:
  std::int64_t* words_ = nullptr;
};

}  // namespace stoker
