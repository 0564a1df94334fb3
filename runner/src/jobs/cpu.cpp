#include <vector>

#include "jobs/jobs.h"
#include "json_write.h"
#include "sha256.h"
#include "spread.h"

namespace stoker::jobs {

namespace {

constexpr Range iteration_range = {0, 1'000'000'000'000};
constexpr Range chain_range = {1, 1024};
constexpr std::int64_t default_chains = 8;

/// The iterations of one chain: an equal share, and one of what is left over.
std::uint64_t share_of(const CpuWork& work, std::uint64_t chain) {
  return work.iterations / work.chains + (chain < work.iterations % work.chains ? 1 : 0);
}

Sha256::Digest run_chain(const CpuWork& work, std::uint64_t chain) {
  return Sha256::repeat(Sha256::of(work.seed + ":" + std::to_string(chain)), share_of(work, chain));
}

}  // namespace

CpuWork read_cpu_work(const Fields& fields, std::int64_t default_iterations) {
  const std::int64_t iterations = fields.integer("iterations", iteration_range).value_or(default_iterations);
  const std::int64_t chains = fields.integer("chains", chain_range).value_or(default_chains);
  return {static_cast<std::uint64_t>(iterations), static_cast<std::uint64_t>(chains),
          fields.text("seed").value_or("stoker")};
}

/// The number of chains, not that of threads, decides what is computed.
std::string do_cpu_work(const CpuWork& work, unsigned threads) {
  std::vector<Sha256::Digest> ends(work.chains);
  spread(work.chains, threads, [&](std::size_t chain) { ends[chain] = run_chain(work, chain); });
  Sha256 all;
  for (const Sha256::Digest& end : ends) all.update(end);
  return json::ObjectWriter().integer("iterations", work.iterations).text("digest", to_hex(all.finish())).finish();
}

std::string cpu_intensive(const Job& job) {
  const Fields fields = Fields::of_sizes(job.payload);
  fields.allow({"iterations", "chains", "seed"});
  return do_cpu_work(read_cpu_work(fields, 100'000), job.threads);
}

}  // namespace stoker::jobs
