#include "frames.h"

#include <algorithm>
#include <cstring>

namespace stoker {

namespace {

constexpr std::size_t request_head_bytes = 8 + 4 + 4 + 2 + 2 + 2;
constexpr std::size_t answer_head_bytes = 8 + 1 + 8 + 8 + 8;

template <class Integer>
Integer take(std::string_view& from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
  }
  from.remove_prefix(sizeof(Integer));
  return static_cast<Integer>(value);
}

std::string_view take_text(std::string_view& from, std::size_t size) {
  const std::string_view text = from.substr(0, size);
  from.remove_prefix(size);
  return text;
}

template <class Integer>
void put(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(std::uint64_t{value} >> (8 * i))));
  }
}

void put_real(std::string& out, double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  put(out, bits);
}

}  // namespace

std::optional<std::size_t> frame_size(std::string_view buffer) {
  if (buffer.size() < length_bytes) return std::nullopt;
  const std::size_t size = take<std::uint32_t>(buffer);
  if (size > largest_frame) throw ProtocolError("a frame of " + std::to_string(size) + " bytes");
  return length_bytes + size;
}

Request decode_request(std::string_view body) {
  if (body.size() < request_head_bytes) throw ProtocolError("a request without its head");
  Request request;
  request.index = take<std::uint64_t>(body);
  request.job.claim_id = take<std::uint32_t>(body);
  request.job.attempt = take<std::uint32_t>(body);
  request.job.threads = std::max<unsigned>(1, take<std::uint16_t>(body));
  const std::size_t type_size = take<std::uint16_t>(body);
  const std::size_t id_size = take<std::uint16_t>(body);
  if (body.size() < type_size + id_size) throw ProtocolError("a request that is shorter than it says");
  request.job.type = take_text(body, type_size);
  request.job.id = take_text(body, id_size);
  request.job.payload = body;
  return request;
}

void append_ready(std::string& out) {
  std::string names;
  for (const JobType& type : job_types()) names += (names.empty() ? "" : "\n") + std::string(type.name);
  put(out, static_cast<std::uint32_t>(names.size()));
  out += names;
}

void append_answer(std::string& out, const Answer& answer) {
  put(out, static_cast<std::uint32_t>(answer_head_bytes + answer.outcome.body.size()));
  put(out, answer.index);
  put(out, static_cast<std::uint8_t>(answer.outcome.ending));
  put_real(out, answer.started);
  put_real(out, answer.finished);
  put(out, answer.cpu_us);
  out += answer.outcome.body;
}

}  // namespace stoker
