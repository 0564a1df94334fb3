#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "check.h"
#include "frames.h"
#include "posix.h"
#include "serve.h"

namespace {

std::string request(unsigned char index, const std::string& type, const std::string& payload) {
  std::string body(22, '\0');
  body[0] = static_cast<char>(index);
  body[8] = 1;
  body[16] = 1;
  body[18] = static_cast<char>(type.size());
  body += type + payload;
  std::string frame(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<char>(static_cast<unsigned char>(body.size() >> (8 * i)));
  return frame + body;
}

/// A server on the other end of a socket pair, for as long as this lives.
class Peer {
 public:
  explicit Peer(stoker::Board& board, std::size_t max_result = 1 << 20) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("no socket pair");
    ours_ = stoker::Descriptor(ends[0]);
    theirs_ = stoker::Descriptor(ends[1]);
    thread_ = std::thread([this, &board, max_result] { stoker::serve(theirs_.get(), theirs_.get(), board, max_result); });
    read_frame();  // "ready"
  }

  ~Peer() {
    ::shutdown(ours_.get(), SHUT_WR);
    thread_.join();
  }

  void send(const std::string& bytes) { stoker::write_all(ours_.get(), bytes); }

  std::string read_frame() {
    const std::string length = read_bytes(4);
    return read_bytes(*stoker::frame_size(length) - 4);
  }

 private:
  std::string read_bytes(std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t at = 0; at < size;) {
      const std::ptrdiff_t got = stoker::read_some(ours_.get(), bytes.data() + at, size - at);
      if (got <= 0) throw std::runtime_error("the server has gone");
      at += static_cast<std::size_t>(got);
    }
    return bytes;
  }

  stoker::Descriptor ours_;
  stoker::Descriptor theirs_;
  std::thread thread_;
};

}  // namespace

TEST(serves_in_order_whatever_the_pieces) {
  stoker::Board board;
  Peer peer(board);
  std::string all;
  for (unsigned char i = 0; i < 50; ++i) all += request(i, "echo", std::string(static_cast<std::size_t>(i) * 40 + 1, '7'));
  for (std::size_t at = 0; at < all.size(); at += 113) peer.send(all.substr(at, 113));
  for (unsigned char i = 0; i < 50; ++i) {
    const std::string answer = peer.read_frame();
    EQUAL(static_cast<int>(answer[0]), static_cast<int>(i));
    // Beyond a thousand digits it is no number any more.
    EQUAL(static_cast<int>(answer[8]), i * 40 + 1 > 1000 ? 2 : 0);
  }
}

TEST(serves_what_is_larger_than_its_buffer) {
  stoker::Board board;
  Peer peer(board, 1 << 24);
  const std::string large = "\"" + std::string(3'000'000, 'x') + "\"";
  peer.send(request(1, "echo", large) + request(2, "echo", "1"));
  EQUAL(peer.read_frame().substr(33), large);
  EQUAL(peer.read_frame().substr(33), "1");
}

TEST(an_answer_does_not_wait_for_the_next_job) {
  stoker::Board board;
  Peer peer(board);
  peer.send(request(1, "sleep", R"({"seconds": 0})") + request(2, "echo", "1"));
  peer.read_frame();
  peer.read_frame();
  // By now `sleep` is known to be short, so its neighbour's answer could be held back for it.
  peer.send(request(3, "echo", "1") + request(4, "sleep", R"({"seconds": 1})"));
  const double asked = stoker::monotonic_seconds();
  EQUAL(static_cast<int>(peer.read_frame()[0]), 3);
  CHECK(stoker::monotonic_seconds() - asked < 0.5);
  peer.read_frame();
}

TEST(results_are_bounded_and_unknown_types_told) {
  stoker::Board board;
  Peer peer(board, 10);
  peer.send(request(1, "echo", "\"0123456789\"") + request(2, "nope", "1"));
  CHECK(peer.read_frame().find("result_too_large") != std::string::npos);
  CHECK(peer.read_frame().find("unknown_type") != std::string::npos);
}

TEST(the_board_is_kept_and_heeded) {
  const stoker::Descriptor page(::memfd_create("board", 0));
  CHECK(::ftruncate(page.get(), 4096) == 0);
  auto* words = static_cast<std::int64_t*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page.get(), 0));
  words[3] = 2;  // skip from
  words[4] = 3;  // skip to
  stoker::Board board(page.get());
  Peer peer(board);
  peer.send(request(1, "echo", "1") + request(2, "echo", "2") + request(3, "echo", "3"));
  for (const int kind : {0, 3, 0}) EQUAL(static_cast<int>(peer.read_frame()[8]), kind);
  EQUAL(__atomic_load_n(words, __ATOMIC_ACQUIRE), 3);
  ::munmap(words, 4096);
}
