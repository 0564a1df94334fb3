/// Real HTTP over the loopback interface: a small server on a port that the system picks, and clients that ask it.

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "failure.h"
#include "jobs/jobs.h"
#include "json_write.h"
#include "posix.h"
#include "spread.h"

namespace stoker::jobs {

namespace {

constexpr Range request_range = {1, 100'000};
constexpr Range body_kb_range = {0, 10'240};
constexpr std::int64_t default_requests = 20;
constexpr std::int64_t default_body_kb = 4;
constexpr std::size_t largest_head = 8192;
constexpr std::size_t most_connections = 64;
constexpr long patience_seconds = 10;
constexpr std::string_view head_end = "\r\n\r\n";

[[noreturn]] void network_error(const char* what) { fail_with_errno("network_error", what, errno); }
[[noreturn]] void bad_answer() { throw Failure("network_error", "the loopback server gave a bad answer", true); }

sockaddr_in loopback(in_port_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port;
  return address;
}

const sockaddr* generic(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

/// Nothing on this connection takes longer than a moment, or something is wrong with the machine.
void be_impatient(int fd) {
  const timeval limit{patience_seconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// A connection and what was read from it beyond the last message.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {}

  /// Up to and including the empty line; empty when the other side is done or sends too much.
  std::string read_head() {
    while (true) {
      const std::size_t end = buffer_.find(head_end);
      if (end != std::string::npos) return take(end + head_end.size());
      if (buffer_.size() > largest_head || !fill()) return {};
    }
  }

  /// False when the connection ends before that many bytes came.
  bool read_body(std::size_t size) {
    while (buffer_.size() < size) {
      if (!fill()) return false;
    }
    take(size);
    return true;
  }

 private:
  std::string take(std::size_t size) {
    std::string taken = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return taken;
  }

  bool fill() {
    char chunk[16 * 1024];
    const std::ptrdiff_t got = read_some(fd_, chunk, sizeof chunk);
    if (got <= 0) return false;
    buffer_.append(chunk, static_cast<std::size_t>(got));
    return true;
  }

  int fd_;
  std::string buffer_;
};

/// Answers every GET with the same body, until it is destroyed. Strangers may connect, since the port is open to all
/// on this machine; they get the same, or are cut off.
class Server {
 public:
  explicit Server(std::size_t body_bytes) : listener_(tcp_socket()) {
    answer_ = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: " +
              std::to_string(body_bytes) + std::string(head_end) + std::string(body_bytes, 'x');
    if (!listener_.open()) network_error("cannot make a socket");
    const sockaddr_in address = loopback(0);
    if (::bind(listener_.get(), generic(address), sizeof address) != 0) network_error("cannot bind to 127.0.0.1");
    if (::listen(listener_.get(), SOMAXCONN) != 0) network_error("cannot listen");
    acceptor_ = std::thread([this] { accept_all(); });
  }

  ~Server() {
    stopping_ = true;
    wake_acceptor();
    acceptor_.join();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const int fd : connections_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  in_port_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      network_error("cannot tell the port");
    }
    return address.sin_port;
  }

 private:
  /// On Linux the end of the listening socket wakes `accept`; elsewhere only a connection does.
  void wake_acceptor() {
#ifdef __linux__
    ::shutdown(listener_.get(), SHUT_RDWR);
#else
    const Descriptor knock = tcp_socket();
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    if (::connect(knock.get(), generic(address), size) != 0) ::shutdown(listener_.get(), SHUT_RDWR);
#endif
  }

  void accept_all() {
    while (!stopping_) {
      Descriptor connection = accept_from(listener_.get());
      if (!connection.open() && errno != EINTR && errno != ECONNABORTED) return;
      if (connection.open() && threads_.size() < most_connections) serve_apart(std::move(connection));
    }
  }

  /// Without a thread the connection closes, and its client says that the answer is missing.
  void serve_apart(Descriptor connection) {
    try {
      threads_.emplace_back([this, held = std::move(connection)] { serve(held.get()); });
    } catch (const std::system_error&) {
    }
  }

  void serve(int fd) {
    if (!enter(fd)) return;
    be_impatient(fd);
    Stream stream(fd);
    while (stream.read_head().compare(0, 4, "GET ") == 0 && write_all(fd, answer_)) {
    }
    leave(fd);
  }

  bool enter(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
    connections_.push_back(fd);
    return true;
  }

  void leave(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    connections_.erase(std::find(connections_.begin(), connections_.end(), fd));
  }

  Descriptor listener_;
  std::string answer_;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  std::mutex mutex_;
  std::vector<int> connections_;      // guarded by mutex_
  std::vector<std::thread> threads_;  // the acceptor's, until it has ended
};

Descriptor connect_to(in_port_t port) {
  Descriptor connection = tcp_socket();
  if (!connection.open()) network_error("cannot make a socket");
  be_impatient(connection.get());
  const sockaddr_in address = loopback(port);
  if (::connect(connection.get(), generic(address), sizeof address) != 0) network_error("cannot connect");
  return connection;
}

std::size_t announced_body(const std::string& head) {
  static constexpr std::string_view name = "Content-Length: ";
  const std::size_t at = head.find(name);
  if (head.compare(0, 13, "HTTP/1.1 200 ") != 0 || at == std::string::npos) bad_answer();
  return std::strtoul(head.c_str() + at + name.size(), nullptr, 10);
}

/// One client with one connection; how many bytes it was given in all.
std::uint64_t ask(in_port_t port, std::uint64_t requests) {
  const Descriptor connection = connect_to(port);
  Stream stream(connection.get());
  std::uint64_t received = 0;
  for (; requests > 0; --requests) {
    if (!write_all(connection.get(), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")) network_error("cannot send");
    const std::size_t size = announced_body(stream.read_head());
    if (!stream.read_body(size)) bad_answer();
    received += size;
  }
  return received;
}

}  // namespace

std::string network_task(const Job& job) {
  const Fields fields = Fields::of_sizes(job.payload);
  fields.allow({"requests", "size_kb"});
  const auto requests = static_cast<std::uint64_t>(fields.integer("requests", request_range).value_or(default_requests));
  const auto size_kb = static_cast<std::uint64_t>(fields.integer("size_kb", body_kb_range).value_or(default_body_kb));
  const std::uint64_t clients = std::min<std::uint64_t>({requests, job.threads, most_connections / 2});
  const Server server(size_kb * 1024);
  const in_port_t port = server.port();
  std::vector<std::uint64_t> received(clients);
  spread(clients, job.threads, [&](std::size_t client) {
    received[client] = ask(port, requests / clients + (client < requests % clients ? 1 : 0));
  });
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : received) total += bytes;
  return json::ObjectWriter().integer("requests", requests).integer("bytes", total).finish();
}

}  // namespace stoker::jobs
