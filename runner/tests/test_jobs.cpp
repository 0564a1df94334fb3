#include "check.h"
#include "job.h"
#include "spread.h"

#include <atomic>
#include <stdexcept>

namespace {

stoker::Outcome run(std::string_view type, std::string_view payload, unsigned threads = 1, std::uint32_t claim = 1) {
  stoker::Job job;
  job.type = type;
  job.payload = payload;
  job.threads = threads;
  job.claim_id = claim;
  return stoker::run_job(*stoker::find_type(type), job);
}

bool completed(const stoker::Outcome& outcome) { return outcome.ending == stoker::Ending::completed; }

}  // namespace

TEST(load_types_give_the_same_on_any_number_of_threads) {
  const std::pair<const char*, const char*> jobs[] = {
      {"cpu_intensive", R"({"iterations": 1001, "chains": 7})"},
      {"io_intensive", R"({"files": 5, "size_kb": 65, "fsync": false})"},
      {"mixed_workload", R"({"iterations": 100, "files": 3, "size_kb": 1, "fsync": false})"},
      {"network_task", R"({"requests": 11, "size_kb": 3})"}};
  for (const auto& [type, payload] : jobs) {
    const stoker::Outcome alone = run(type, payload);
    CHECK(completed(alone));
    EQUAL(run(type, payload, 4).body, alone.body);
  }
}

TEST(every_type_refuses_what_it_does_not_know) {
  for (const stoker::JobType& type : stoker::job_types()) {
    if (type.name == "echo") continue;
    const stoker::Outcome outcome = run(type.name, R"({"no such field": 1})");
    CHECK(outcome.ending == stoker::Ending::invalid);
    CHECK(outcome.body.find("no such field") != std::string::npos);
  }
}

TEST(fail_counts_claims) {
  CHECK(run("fail", "null").ending == stoker::Ending::error);
  CHECK(run("fail", R"({"times": 2})", 1, 2).ending == stoker::Ending::error);
  EQUAL(run("fail", R"({"times": 2})", 1, 3).body, R"({"failed":2})");
}

TEST(messages_are_bounded_and_valid) {
  const std::string long_message = R"({"message": ")" + std::string(10'000, 'x') + R"("})";
  EQUAL(run("fail", long_message).body.size(), 4000U + std::string(R"({"type":"failed_on_purpose","message":""})").size());
  EQUAL(stoker::error_json("t", "a\xff" "b"), R"({"type":"t","message":"a?b"})");
}

TEST(work_is_spread_and_its_first_failure_thrown) {
  std::atomic<int> done{0};
  stoker::spread(100, 8, [&](std::size_t) { ++done; });
  EQUAL(done.load(), 100);
  try {
    stoker::spread(100, 8, [](std::size_t i) {
      if (i >= 40) throw std::runtime_error(std::to_string(i));
    });
    CHECK(false);
  } catch (const std::runtime_error& error) {
    EQUAL(std::string(error.what()), "40");
  }
}
