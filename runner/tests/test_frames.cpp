#include "check.h"
#include "frames.h"

namespace {

std::string refusal(std::string_view body) {
  try {
    stoker::decode_request(body);
    return "";
  } catch (const stoker::ProtocolError& error) {
    return error.what();
  }
}

}  // namespace

TEST(a_request_is_taken_apart) {
  const std::string body =
      std::string("\x07\0\0\0\0\0\0\0\x03\0\0\0\x02\0\0\0\x04\0\x04\0\x02\0", 22) + "echo" + "id" + "{\"a\":1}";
  const stoker::Request request = stoker::decode_request(body);
  EQUAL(request.index, 7U);
  EQUAL(request.job.claim_id, 3U);
  EQUAL(request.job.attempt, 2U);
  EQUAL(request.job.threads, 4U);
  EQUAL(request.job.type, "echo");
  EQUAL(request.job.id, "id");
  EQUAL(request.job.payload, "{\"a\":1}");
}

TEST(a_request_that_makes_no_sense_is_an_error) {
  EQUAL(refusal(""), "a request without its head");
  EQUAL(refusal(std::string(21, '\0')), "a request without its head");
  EQUAL(refusal(std::string(20, '\0') + "\x01" + std::string(1, '\0')), "a request that is shorter than it says");
  EQUAL(refusal(std::string(22, '\0')), "");
}

TEST(frames_have_a_size) {
  CHECK(!stoker::frame_size("abc"));
  EQUAL(*stoker::frame_size(std::string("\x05\0\0\0", 4)), 9U);
  try {
    stoker::frame_size("\xff\xff\xff\xff");
    CHECK(false);
  } catch (const stoker::ProtocolError&) {
  }
}

TEST(an_answer_is_put_together) {
  std::string out;
  stoker::Answer answer;
  answer.index = 1;
  answer.outcome = {stoker::Ending::invalid, "{}"};
  stoker::append_answer(out, answer);
  EQUAL(out.size(), 4U + 33U + 2U);
  EQUAL(static_cast<int>(out[0]), 35);
  EQUAL(static_cast<int>(out[12]), 2);
  EQUAL(out.substr(37), "{}");
}
