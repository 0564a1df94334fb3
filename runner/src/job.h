#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stoker {

/// One job as it reaches a runner. The text belongs to whoever runs it.
struct Job {
  std::string_view id;
  std::string_view type;
  std::string_view payload;
  std::uint32_t claim_id = 1;
  std::uint32_t attempt = 1;
  unsigned threads = 1;
};

/// How a job ended, by the numbers that frames carry.
enum class Ending : std::uint8_t { completed = 0, error = 1, invalid = 2, handed_back = 3 };

struct Outcome {
  Ending ending = Ending::completed;
  std::string body;  // the result or the error, as JSON
};

/// Gives the result as JSON, or throws a `Failure`.
using Run = std::string (*)(const Job&);

struct JobType {
  std::string_view name;
  Run run;
};

/// All that this runner can do, by name.
const std::vector<JobType>& job_types();
const JobType* find_type(std::string_view name);

/// Run a job to its end. Nothing that the job does gets past this, except a crash.
Outcome run_job(const JobType& type, const Job& job);

/// `{"type": …, "message": …}`
std::string error_json(std::string_view type, std::string_view message);

std::string no_such_type(std::string_view type);

}  // namespace stoker
