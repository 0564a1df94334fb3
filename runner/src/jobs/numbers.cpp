#include "failure.h"
#include "jobs/jobs.h"
#include "json_write.h"
#include "number_sum.h"

namespace stoker::jobs {

namespace {

void add_field(NumberSum& sum, const Fields& fields, std::string_view name) {
  fields.require(name);
  sum.add_first(fields.number(name)->raw);
}

}  // namespace

std::string add_numbers(const Job& job) {
  const Fields fields(job.payload);
  fields.allow({"x", "y"});
  NumberSum sum;
  add_field(sum, fields, "x");
  add_field(sum, fields, "y");
  return json::ObjectWriter().raw("sum", sum.to_json()).finish();
}

std::string large_array_sum(const Job& job) {
  const Fields fields(job.payload, {"numbers", "array"});
  fields.allow({"numbers", "array"});
  if (fields.find("numbers") && fields.find("array")) refuse("give either numbers or array");
  const std::string name = fields.find("array") ? "array" : "numbers";
  const json::Value numbers = fields.require(name);
  if (numbers.kind != json::Kind::array) refuse(name + " must be an array, not " + name_of(numbers.kind));
  return json::ObjectWriter().raw("sum", sum_array(numbers.raw, name, job.threads).to_json()).finish();
}

}  // namespace stoker::jobs
