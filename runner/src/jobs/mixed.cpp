#include "jobs/jobs.h"
#include "json_write.h"

namespace stoker::jobs {

std::string mixed_workload(const Job& job) {
  const Fields fields = Fields::of_sizes(job.payload);
  fields.allow({"iterations", "chains", "seed", "files", "size_kb", "fsync"});
  const CpuWork cpu = read_cpu_work(fields, 50'000);
  const IoWork io = read_io_work(fields, 2, 128);
  return json::ObjectWriter()
      .raw("cpu", do_cpu_work(cpu, job.threads))
      .raw("io", do_io_work(io, job.threads))
      .finish();
}

}  // namespace stoker::jobs
