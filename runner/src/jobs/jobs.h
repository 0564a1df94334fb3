#pragma once

/// The built-in job types. docs/reference/job-types.md says what each takes and gives, and
/// `stoker.executors.builtin` is the same in Python; tests/runner/cases.py holds both to it.

#include <string>

#include "fields.h"
#include "job.h"

namespace stoker::jobs {

std::string add_numbers(const Job& job);
std::string cpu_intensive(const Job& job);
std::string echo(const Job& job);
std::string fail(const Job& job);
std::string io_intensive(const Job& job);
std::string large_array_sum(const Job& job);
std::string mixed_workload(const Job& job);
std::string network_task(const Job& job);
std::string reverse_string(const Job& job);
std::string sleep(const Job& job);

// The halves of `mixed_workload`.

struct CpuWork {
  std::uint64_t iterations;
  std::uint64_t chains;
  std::string seed;
};
CpuWork read_cpu_work(const Fields& fields, std::int64_t default_iterations);
std::string do_cpu_work(const CpuWork& work, unsigned threads);

struct IoWork {
  std::uint64_t files;
  std::uint64_t file_bytes;
  bool sync;
};
IoWork read_io_work(const Fields& fields, std::int64_t default_files, std::int64_t default_size_kb);
std::string do_io_work(const IoWork& work, unsigned threads);

}  // namespace stoker::jobs
