/// The command line of the runner; docs/reference/runner.md is its manual.

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#else
#include <chrono>
#include <thread>
#endif

#include "board.h"
#include "frames.h"
#include "job.h"
#include "serve.h"
#include "single_shot.h"

namespace stoker {

namespace {

constexpr const char* usage =
    "usage: stoker-runner --job-id ID --type TYPE [--payload JSON | --payload -] [--threads N]\n"
    "       stoker-runner --serve [--board FD] [--parent PID] [--max-result BYTES]\n"
    "       stoker-runner --types | --version | --help\n";

constexpr unsigned most_threads = 1024;

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  SingleShot job;
  bool has_id = false;
  bool has_type = false;
  bool serve = false;
  bool types = false;
  bool version = false;
  bool help = false;
  int board = -1;
  int parent = 0;
  std::size_t max_result = std::numeric_limits<std::size_t>::max();
};

template <class Integer>
Integer to_number(const std::string& option, std::string_view text, Integer least, Integer most) {
  Integer value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  if (whole && value >= least && value <= most) return value;
  throw UsageError(option + " wants a number between " + std::to_string(least) + " and " + std::to_string(most));
}

/// Threads that the supervisor granted, for whoever does not pass them on the command line.
unsigned threads_from_environment() {
  const char* text = std::getenv("STOKER_THREADS");
  return text == nullptr ? 1 : to_number<unsigned>("STOKER_THREADS", text, 1, most_threads);
}

bool read_flag(Options& options, const std::string& name) {
  bool* flag = name == "--serve"     ? &options.serve
               : name == "--types"   ? &options.types
               : name == "--version" ? &options.version
               : name == "--help"    ? &options.help
                                     : nullptr;
  if (flag != nullptr) *flag = true;
  return flag != nullptr;
}

void read_option(Options& options, const std::string& name, const std::string& value) {
  constexpr int any = std::numeric_limits<int>::max();
  if (name == "--job-id") {
    options.job.id = value;
    options.has_id = true;
  } else if (name == "--type") {
    options.job.type = value;
    options.has_type = true;
  } else if (name == "--payload") {
    options.job.payload = value;
  } else if (name == "--threads") {
    options.job.threads = to_number<unsigned>(name, value, 1, most_threads);
  } else if (name == "--board") {
    options.board = to_number<int>(name, value, 0, any);
  } else if (name == "--parent") {
    options.parent = to_number<int>(name, value, 1, any);
  } else if (name == "--max-result") {
    options.max_result = to_number<std::size_t>(name, value, 0, std::numeric_limits<std::size_t>::max());
  } else {
    throw UsageError("unknown option " + name);
  }
}

Options read_options(int count, char** arguments) {
  Options options;
  options.job.threads = threads_from_environment();
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (read_flag(options, argument)) continue;
    if (argument.compare(0, 2, "--") != 0) throw UsageError("unexpected argument " + argument);
    const std::size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      read_option(options, argument.substr(0, equals), argument.substr(equals + 1));
    } else if (i + 1 < count) {
      read_option(options, argument, arguments[++i]);
    } else {
      throw UsageError(argument + " wants a value");
    }
  }
  return options;
}

/// Let this process end when its parent ends, and end it now if that already happened. Where the kernel cannot be asked, a
/// thread looks again and again.
void die_with_parent(int parent) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#else
  std::thread([parent] {
    while (::getppid() == parent) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::_Exit(exit_failed);
  }).detach();
#endif
  if (::getppid() != parent) std::_Exit(exit_failed);
}

void set_signals(bool serving) {
  // A reader that went away is an error of `write`, not the end of us.
  std::signal(SIGPIPE, SIG_IGN);
  // Ctrl-C at a terminal is for the supervisor, which ends its children in its own way.
  if (serving) std::signal(SIGINT, SIG_IGN);
  // Whatever we inherited: SIGTERM ends this process at once. No job leaves anything that would need clearing up.
  std::signal(SIGTERM, SIG_DFL);
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &terminate, nullptr);
}

int run_server(const Options& options) {
  try {
    const std::unique_ptr<Board> board =
        options.board < 0 ? std::make_unique<Board>() : std::make_unique<Board>(options.board);
    serve(STDIN_FILENO, STDOUT_FILENO, *board, options.max_result);
    return exit_ok;
  } catch (const ProtocolError& error) {
    std::cerr << "stoker-runner: " << error.what() << "\n";
    return exit_protocol;
  } catch (const std::exception& error) {
    std::cerr << "stoker-runner: " << error.what() << "\n";
    return exit_failed;
  }
}

int print_types() {
  // What this runner takes, for a worker that has it as EXECUTION_BINARY; see docs/reference/runner.md.
  std::cout << "stoker-runner 1 threads json\n";
  for (const JobType& type : job_types()) std::cout << type.name << "\n";
  return exit_ok;
}

int run(const Options& options) {
  if (options.help) {
    std::cout << usage;
    return exit_ok;
  }
  if (options.version) {
    std::cout << "stoker-runner " << STOKER_VERSION << "\n";
    return exit_ok;
  }
  if (options.types) return print_types();
  if (options.parent > 0) die_with_parent(options.parent);
  set_signals(options.serve);
  if (options.serve) return run_server(options);
  if (!options.has_id || !options.has_type) throw UsageError("--job-id and --type are required");
  return run_single_shot(options.job);
}

}  // namespace

}  // namespace stoker

int main(int count, char** arguments) {
  try {
    return stoker::run(stoker::read_options(count, arguments));
  } catch (const stoker::UsageError& error) {
    std::cerr << "stoker-runner: " << error.what() << "\n" << stoker::usage;
    return stoker::exit_usage;
  }
}
