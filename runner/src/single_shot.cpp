#include "single_shot.h"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unistd.h>

#include "failure.h"
#include "job.h"
#include "posix.h"

namespace stoker {

namespace {

constexpr std::size_t first_read_bytes = 64 * 1024;

/// A number that the supervisor left in the environment; 1 if it left none, as for somebody who tries a job by hand.
std::uint32_t number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  std::uint32_t value = 1;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value;
}

std::string read_standard_input() {
  std::string all(first_read_bytes, '\0');
  std::size_t size = 0;
  while (true) {
    const std::ptrdiff_t got = read_some(STDIN_FILENO, all.data() + size, all.size() - size);
    if (got < 0) fail_with_errno("io_error", "cannot read the payload", errno);
    size += static_cast<std::size_t>(got);
    if (size == all.size()) all.resize(2 * size);
    if (got == 0) break;
  }
  all.resize(size);
  return all;
}

int end_with_error(const std::string& error, int code) {
  write_all(STDERR_FILENO, error + "\n");
  return code;
}

int end_with(const Outcome& outcome) {
  switch (outcome.ending) {
    case Ending::completed: break;
    case Ending::invalid: return end_with_error(outcome.body, exit_invalid_payload);
    default: return end_with_error(outcome.body, exit_failed);
  }
  if (write_all(STDOUT_FILENO, outcome.body) && write_all(STDOUT_FILENO, "\n")) return exit_ok;
  return end_with_error(error_json("io_error", "cannot write the result"), exit_failed);
}

}  // namespace

int run_single_shot(const SingleShot& options) {
  const JobType* type = find_type(options.type);
  if (type == nullptr) {
    return end_with_error(error_json("unknown_type", no_such_type(options.type)), exit_unknown_type);
  }
  try {
    const std::string payload = options.payload == "-" ? read_standard_input() : options.payload;
    Job job;
    job.id = options.id;
    job.type = options.type;
    job.payload = payload;
    job.claim_id = number_from_environment("STOKER_CLAIM_ID");
    job.attempt = number_from_environment("STOKER_ATTEMPT");
    job.threads = options.threads;
    return end_with(run_job(*type, job));
  } catch (const Failure& failure) {
    return end_with_error(error_json(failure.type(), failure.message()), exit_failed);
  } catch (const std::bad_alloc&) {
    return end_with_error(error_json("out_of_memory", "there is not enough memory for the payload"), exit_failed);
  }
}

}  // namespace stoker
