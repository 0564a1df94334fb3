#include <chrono>
#include <thread>

#include "failure.h"
#include "jobs/jobs.h"
#include "json_write.h"
#include "number.h"

namespace stoker::jobs {

namespace {

constexpr double longest_sleep_seconds = 86'400 * 30;
constexpr Range failures = {0, 4'294'967'295};
constexpr const char* default_message = "this job fails on purpose";

}  // namespace

std::string echo(const Job& job) {
  json::check(job.payload);
  return std::string(job.payload);
}

std::string sleep(const Job& job) {
  const Fields fields(job.payload);
  fields.allow({"seconds"});
  const auto given = fields.number("seconds");
  const double seconds = given ? to_double(given->raw) : 1.0;
  if (!(seconds >= 0 && seconds <= longest_sleep_seconds)) refuse("seconds must be between 0 and 2592000");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  // Adding zero turns -0.0 into 0.0.
  return json::ObjectWriter().real("slept", seconds + 0.0).finish();
}

std::string fail(const Job& job) {
  const Fields fields(job.payload);
  fields.allow({"times", "message"});
  const auto times = fields.integer("times", failures);
  const auto message = fields.text("message");
  if (!times || job.claim_id <= *times) throw Failure("failed_on_purpose", message.value_or(default_message), true);
  return json::ObjectWriter().integer("failed", static_cast<std::uint64_t>(*times)).finish();
}

}  // namespace stoker::jobs
