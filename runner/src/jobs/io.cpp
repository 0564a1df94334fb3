#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "failure.h"
#include "jobs/jobs.h"
#include "json_write.h"
#include "posix.h"
#include "sha256.h"
#include "spread.h"

namespace stoker::jobs {

namespace {

constexpr Range file_range = {1, 10'000};
constexpr Range file_kb_range = {1, 1'048'576};
constexpr std::size_t block_bytes = 64 * 1024;

[[noreturn]] void io_error(const char* what) { fail_with_errno("io_error", what, errno); }

/// A file without a name: whatever ends this process, nothing is left behind.
Descriptor open_unnamed() {
  const char* configured = std::getenv("TMPDIR");
  const std::string folder = configured != nullptr && *configured != '\0' ? configured : "/tmp";
#ifdef O_TMPFILE
  Descriptor unnamed(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (unnamed.open()) return unnamed;
#endif
  // Some file systems cannot do that; there the file has a name for a moment.
  std::string path = folder + "/stoker-io-XXXXXX";
  Descriptor named(::mkstemp(path.data()));
  if (!named.open()) io_error("cannot make a temporary file");
  ::unlink(path.c_str());
  return named;
}

/// What a file holds: the digest of its number, over and over.
std::string block_of(std::size_t file) {
  const Sha256::Digest digest = Sha256::of("stoker:" + std::to_string(file));
  std::string block;
  while (block.size() < block_bytes) block.append(digest.begin(), digest.end());
  return block;
}

void write_file(int fd, const std::string& block, const IoWork& work) {
  for (std::uint64_t left = work.file_bytes; left > 0;) {
    const std::uint64_t size = std::min<std::uint64_t>(left, block.size());
    if (!write_all(fd, std::string_view(block).substr(0, size))) io_error("cannot write");
    left -= size;
  }
  if (work.sync && ::fsync(fd) != 0) io_error("cannot sync");
}

/// Read the file back; its digest, and how much there was.
Sha256::Digest read_file(int fd, std::uint64_t expected_bytes) {
  if (::lseek(fd, 0, SEEK_SET) != 0) io_error("cannot seek");
  std::vector<char> buffer(block_bytes);
  Sha256 hash;
  std::uint64_t total = 0;
  while (true) {
    const std::ptrdiff_t got = read_some(fd, buffer.data(), buffer.size());
    if (got < 0) io_error("cannot read");
    if (got == 0) break;
    hash.update(buffer.data(), static_cast<std::size_t>(got));
    total += static_cast<std::uint64_t>(got);
  }
  if (total != expected_bytes) throw Failure("io_error", "a file came back with another size", true);
  return hash.finish();
}

Sha256::Digest write_and_read(const IoWork& work, std::size_t file) {
  const Descriptor descriptor = open_unnamed();
  write_file(descriptor.get(), block_of(file), work);
  return read_file(descriptor.get(), work.file_bytes);
}

}  // namespace

IoWork read_io_work(const Fields& fields, std::int64_t default_files, std::int64_t default_size_kb) {
  const std::int64_t files = fields.integer("files", file_range).value_or(default_files);
  const std::int64_t size_kb = fields.integer("size_kb", file_kb_range).value_or(default_size_kb);
  return {static_cast<std::uint64_t>(files), static_cast<std::uint64_t>(size_kb) * 1024, fields.boolean("fsync", true)};
}

std::string do_io_work(const IoWork& work, unsigned threads) {
  std::vector<Sha256::Digest> digests(work.files);
  spread(work.files, threads, [&](std::size_t file) { digests[file] = write_and_read(work, file); });
  Sha256 all;
  for (const Sha256::Digest& digest : digests) all.update(digest);
  return json::ObjectWriter()
      .integer("files", work.files)
      .integer("bytes", work.files * work.file_bytes)
      .text("digest", to_hex(all.finish()))
      .finish();
}

std::string io_intensive(const Job& job) {
  const Fields fields = Fields::of_sizes(job.payload);
  fields.allow({"files", "size_kb", "fsync"});
  return do_io_work(read_io_work(fields, 4, 256), job.threads);
}

}  // namespace stoker::jobs
