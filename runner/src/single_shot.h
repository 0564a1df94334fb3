#pragma once

#include <string>

namespace stoker {

/// What the command line asks for; the payload is "-" when it stands on standard input.
struct SingleShot {
  std::string id;
  std::string type;
  std::string payload = "null";
  unsigned threads = 1;
};

/// Exit codes, which are part of the contract with whoever starts a runner.
enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,
  exit_usage = 2,
  exit_invalid_payload = 3,
  exit_unknown_type = 4,
  exit_protocol = 5,
};

/// Run one job: the result on standard output, or the error as the last line on standard error.
int run_single_shot(const SingleShot& options);

}  // namespace stoker
