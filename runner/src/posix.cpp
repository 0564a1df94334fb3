#include "posix.h"

#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace stoker {

#ifndef __linux__
namespace {

Descriptor not_inherited(int fd) {
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Descriptor(fd);
}

}  // namespace
#endif

Descriptor::~Descriptor() {
  if (open()) ::close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  if (open()) ::close(fd_);
  fd_ = other.fd_;
  other.fd_ = -1;
  return *this;
}

bool write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::ptrdiff_t read_some(int fd, char* to, std::size_t size) {
  while (true) {
    const ssize_t got = ::read(fd, to, size);
    if (got >= 0 || errno != EINTR) return got;
  }
}

Descriptor tcp_socket() {
#ifdef __linux__
  return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
#else
  return not_inherited(::socket(AF_INET, SOCK_STREAM, 0));
#endif
}

Descriptor accept_from(int listener) {
#ifdef __linux__
  return Descriptor(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
#else
  return not_inherited(::accept(listener, nullptr, nullptr));
#endif
}

double monotonic_seconds() {
#ifdef __APPLE__
  // The clock of Python's time.monotonic() there, which stands still while the machine sleeps; CLOCK_MONOTONIC does not.
  constexpr clockid_t clock = CLOCK_UPTIME_RAW;
#else
  constexpr clockid_t clock = CLOCK_MONOTONIC;
#endif
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::uint64_t cpu_microseconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(used.tv_nsec) / 1'000;
}

}  // namespace stoker
