#include "spread.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace stoker {

namespace {

/// Indexes are handed out in order, so once one has failed, all lower ones are under way or done.
class Share {
 public:
  Share(std::size_t count, const std::function<void(std::size_t)>& work) : count_(count), work_(work) {}

  void take_part() {
    while (!failed_.load()) {
      const std::size_t index = next_.fetch_add(1);
      if (index >= count_) return;
      try {
        work_(index);
      } catch (...) {
        note(index, std::current_exception());
      }
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void note(std::size_t index, std::exception_ptr failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_.store(true);
    if (index >= failed_index_) return;
    failed_index_ = index;
    failure_ = std::move(failure);
  }

  const std::size_t count_;
  const std::function<void(std::size_t)>& work_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::size_t failed_index_ = static_cast<std::size_t>(-1);
  std::exception_ptr failure_;
};

/// As many helpers as the system lets us have: with fewer, or none, the work is done all the same.
std::vector<std::thread> start_helpers(std::size_t wanted, Share& share) {
  std::vector<std::thread> helpers;
  helpers.reserve(wanted);
  try {
    while (helpers.size() < wanted) helpers.emplace_back([&share] { share.take_part(); });
  } catch (const std::system_error&) {
  }
  return helpers;
}

}  // namespace

void spread(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work) {
  Share share(count, work);
  const std::size_t useful = std::min<std::size_t>(threads, count);
  std::vector<std::thread> helpers = start_helpers(useful > 1 ? useful - 1 : 0, share);
  share.take_part();
  for (std::thread& helper : helpers) helper.join();
  share.rethrow();
}

}  // namespace stoker
