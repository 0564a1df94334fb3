#include "check.h"
#include "sha256.h"

using stoker::Sha256;
using stoker::to_hex;

TEST(sha256_known_answers) {
  EQUAL(to_hex(Sha256::of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EQUAL(to_hex(Sha256::of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EQUAL(to_hex(Sha256::of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EQUAL(to_hex(Sha256::of(std::string(1'000'000, 'a'))),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256_in_pieces) {
  const std::string text(1000, 'x');
  for (const std::size_t size : {1U, 55U, 56U, 63U, 64U, 65U, 200U}) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += size) hash.update(std::string_view(text).substr(at, size));
    EQUAL(to_hex(hash.finish()), to_hex(Sha256::of(text)));
  }
}

TEST(sha256_repeated) {
  const Sha256::Digest first = Sha256::of("seed");
  Sha256 hash;
  hash.update(first);
  EQUAL(to_hex(Sha256::repeat(first, 1)), to_hex(hash.finish()));
  EQUAL(to_hex(Sha256::repeat(first, 0)), to_hex(first));
}
