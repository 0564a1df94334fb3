#include "failure.h"
#include "graphemes.h"
#include "jobs/jobs.h"
#include "json_write.h"

namespace stoker::jobs {

std::string reverse_string(const Job& job) {
  const Fields fields(job.payload);
  fields.allow({"text"});
  fields.require("text");
  return json::ObjectWriter().text("reversed", reverse_graphemes(*fields.text("text"))).finish();
}

}  // namespace stoker::jobs
