#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stoker {

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// All of the data, however many writes it takes; false, with errno set, if it cannot be written.
bool write_all(int fd, std::string_view data);

/// As `read`, but a signal does not end it.
std::ptrdiff_t read_some(int fd, char* to, std::size_t size);

/// A TCP socket that no other program inherits; not open, with errno set, if there is none.
Descriptor tcp_socket();

/// The next connection of a listening socket, likewise.
Descriptor accept_from(int listener);

/// Readings of the clock of Python's `time.monotonic()`, which all processes of one machine share.
double monotonic_seconds();

/// The processor time that all threads of this process have used.
std::uint64_t cpu_microseconds();

}  // namespace stoker
