#include "serve.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "frames.h"
#include "job.h"
#include "posix.h"

namespace stoker {

namespace {

constexpr double short_seconds = 0.001;
constexpr std::chrono::milliseconds late{1};
constexpr std::size_t chunk_bytes = 256 * 1024;
constexpr std::size_t full_outbox_bytes = 256 * 1024;

/// What has come in and is not yet handled.
class Inbox {
 public:
  explicit Inbox(int fd) : fd_(fd) {}

  /// The next complete request, if there is one. It is valid until the next call of either function.
  std::optional<Request> next() {
    const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
    const std::optional<std::size_t> size = frame_size(rest);
    if (!size || rest.size() < *size) return std::nullopt;
    begin_ += *size;
    return decode_request(rest.substr(length_bytes, *size - length_bytes));
  }

  /// Wait for more; false at the end.
  bool fill() {
    make_room();
    const std::ptrdiff_t got = read_some(fd_, buffer_.data() + end_, buffer_.size() - end_);
    if (got <= 0) return false;
    end_ += static_cast<std::size_t>(got);
    return true;
  }

 private:
  /// Move what is left to the front, and have room for all of a frame whose size is known, so that a large one is
  /// neither copied again and again nor read in small pieces.
  void make_room() {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const std::size_t announced = frame_size({buffer_.data(), end_}).value_or(0);
    const std::size_t wanted = std::max(announced, end_ + chunk_bytes / 2);
    if (buffer_.size() < wanted || shrinks_to(wanted)) buffer_.resize(std::max(wanted, chunk_bytes));
    buffer_.shrink_to_fit();
  }

  /// One large request must not cost its memory for ever.
  bool shrinks_to(std::size_t wanted) const { return buffer_.size() > 4 * std::max(wanted, chunk_bytes); }

  int fd_;
  std::vector<char> buffer_ = std::vector<char>(chunk_bytes);
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// What is answered and not yet sent.
class Outbox {
 public:
  explicit Outbox(int fd) : fd_(fd), sender_([this] { send_late(); }) {}

  ~Outbox() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    sender_.join();
  }

  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  void add(const Answer& answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pending_.empty()) {
      oldest_ = answer.finished;
      changed_.notify_one();
    }
    append_answer(pending_, answer);
    if (pending_.size() > full_outbox_bytes || answer.finished - oldest_ > short_seconds) send();
  }

  void ready() {
    const std::lock_guard<std::mutex> lock(mutex_);
    append_ready(pending_);
    send();
  }

  void flush() {
    const std::lock_guard<std::mutex> lock(mutex_);
    send();
  }

  bool broken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return broken_;
  }

 private:
  void send() {
    if (!pending_.empty() && !broken_) broken_ = !write_all(fd_, pending_);
    const bool was_large = pending_.capacity() > 4 * full_outbox_bytes;
    pending_.clear();
    if (was_large) pending_.shrink_to_fit();
  }

  void send_late() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !pending_.empty(); });
      if (closing_) break;
      lock.unlock();
      std::this_thread::sleep_for(late);
      lock.lock();
      send();
    }
  }

  int fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string pending_;  // guarded by mutex_, as is all that follows
  double oldest_ = 0;
  bool closing_ = false;
  bool broken_ = false;
  std::thread sender_;  // last: it uses all of the above
};

class Server {
 public:
  Server(int in, int out, Board& board, std::size_t max_result_bytes)
      : inbox_(in), outbox_(out), board_(board), max_result_bytes_(max_result_bytes), short_(job_types().size()) {}

  void run() {
    outbox_.ready();
    do {
      while (const std::optional<Request> request = inbox_.next()) handle(*request);
      outbox_.flush();
    } while (!outbox_.broken() && inbox_.fill());
  }

 private:
  void handle(const Request& request) {
    const JobType* type = find_type(request.job.type);
    if (!known_short(type)) outbox_.flush();
    Answer answer;
    answer.index = request.index;
    answer.started = monotonic_seconds();
    const std::uint64_t cpu_before = cpu_microseconds();
    if (board_.start(request.index, answer.started)) {
      answer.outcome = run(type, request.job);
    } else {  // taken back before it could start; say so, because the supervisor may have thought otherwise
      answer.outcome.ending = Ending::handed_back;
    }
    answer.cpu_us = cpu_microseconds() - cpu_before;
    answer.finished = monotonic_seconds();
    remember(type, answer.finished - answer.started);
    outbox_.add(answer);
    // Only now: a supervisor that sees an idle child may take it that all answers are on their way.
    board_.stop();
  }

  Outcome run(const JobType* type, const Job& job) const {
    if (type == nullptr) return {Ending::error, error_json("unknown_type", no_such_type(job.type))};
    Outcome outcome = run_job(*type, job);
    if (outcome.ending != Ending::completed || outcome.body.size() <= max_result_bytes_) return outcome;
    return {Ending::invalid, error_json("result_too_large", too_large(outcome.body.size()))};
  }

  std::string too_large(std::size_t size) const {
    return "the result has " + std::to_string(size) + " bytes, and " + std::to_string(max_result_bytes_) +
           " are allowed; store it elsewhere and return a reference";
  }

  static std::size_t place_of(const JobType* type) { return static_cast<std::size_t>(type - job_types().data()); }

  bool known_short(const JobType* type) const { return type == nullptr || short_[place_of(type)]; }

  void remember(const JobType* type, double seconds) {
    if (type != nullptr) short_[place_of(type)] = seconds <= short_seconds;
  }

  Inbox inbox_;
  Outbox outbox_;
  Board& board_;
  std::size_t max_result_bytes_;
  std::vector<bool> short_;
};

}  // namespace

void serve(int in, int out, Board& board, std::size_t max_result_bytes) {
  Server(in, out, board, max_result_bytes).run();
}

}  // namespace stoker
