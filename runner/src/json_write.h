#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stoker::json {

/// Append a string with its quotes. The text must be valid UTF-8; only what JSON demands is escaped.
void append_quoted(std::string& out, std::string_view text);

/// A flat JSON object, written field by field in the order of the calls.
class ObjectWriter {
 public:
  ObjectWriter& text(std::string_view name, std::string_view value);
  ObjectWriter& integer(std::string_view name, std::uint64_t value);
  ObjectWriter& real(std::string_view name, double value);
  /// A value that is JSON already.
  ObjectWriter& raw(std::string_view name, std::string_view json);
  std::string finish();

 private:
  void begin(std::string_view field);

  std::string out_ = "{";
};

}  // namespace stoker::json
