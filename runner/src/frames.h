#pragma once

/// The frames of `--serve`, little endian; docs/reference/runner.md has them as tables.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "job.h"

namespace stoker {

constexpr std::size_t largest_frame = 64 * 1024 * 1024;
constexpr std::size_t length_bytes = 4;

/// The other side does not speak our language; there is no way to find the next frame.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Request {
  std::uint64_t index = 0;
  Job job;
};

struct Answer {
  std::uint64_t index = 0;
  double started = 0;
  double finished = 0;
  std::uint64_t cpu_us = 0;
  Outcome outcome;
};

/// The size of the frame that `buffer` begins with, its length field included; none if not even that is complete.
std::optional<std::size_t> frame_size(std::string_view buffer);

/// `body`: a frame without its length field. The job refers to its bytes.
Request decode_request(std::string_view body);

void append_ready(std::string& out);
void append_answer(std::string& out, const Answer& answer);

}  // namespace stoker
