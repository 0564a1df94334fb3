#include "job.h"

#include <exception>
#include <new>

#include "failure.h"
#include "jobs/jobs.h"
#include "json_write.h"
#include "utf8.h"

namespace stoker {

namespace {

constexpr std::size_t message_characters = 4000;

/// Names come from outside; what is not UTF-8 in them must not make our own JSON invalid.
std::string as_utf8(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8::length_at(text, at);
    out += length == 0 ? std::string_view("?") : text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace

const std::vector<JobType>& job_types() {
  static const std::vector<JobType> types = {
      {"AddNumbers", jobs::add_numbers},
      {"LargeArraySum", jobs::large_array_sum},
      {"ReverseString", jobs::reverse_string},
      {"add_numbers", jobs::add_numbers},
      {"cpu_intensive", jobs::cpu_intensive},
      {"echo", jobs::echo},
      {"fail", jobs::fail},
      {"io_intensive", jobs::io_intensive},
      {"large_array_sum", jobs::large_array_sum},
      {"mixed_workload", jobs::mixed_workload},
      {"network_task", jobs::network_task},
      {"reverse_string", jobs::reverse_string},
      {"sleep", jobs::sleep},
  };
  return types;
}

const JobType* find_type(std::string_view name) {
  for (const JobType& type : job_types()) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

Outcome run_job(const JobType& type, const Job& job) {
  try {
    return {Ending::completed, type.run(job)};
  } catch (const Failure& failure) {
    const Ending ending = failure.retryable() ? Ending::error : Ending::invalid;
    return {ending, error_json(failure.type(), failure.message())};
  } catch (const std::bad_alloc&) {
    return {Ending::error, error_json("out_of_memory", "there is not enough memory for this job")};
  } catch (const std::exception& error) {
    return {Ending::error, error_json("runner_error", error.what())};
  }
}

std::string error_json(std::string_view type, std::string_view message) {
  const std::string text = as_utf8(message);
  return json::ObjectWriter().text("type", type).text("message", utf8::first(text, message_characters)).finish();
}

std::string no_such_type(std::string_view type) {
  return "this runner has no type '" + std::string(type) + "'; --types lists what it has";
}

}  // namespace stoker
