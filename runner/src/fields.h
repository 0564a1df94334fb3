#pragma once

/// The payload of a job as named fields, and the rules that all job types share:
///
/// - `null`, or no payload at all, is `{}`, and for the load types so is a text; anything else but an object is refused;
/// - a field that is `null` counts as absent; of a field that is given twice the last one counts;
/// - an unknown field is refused by name, and so is a value of the wrong type or out of its range;
/// - an integer is written without fraction and exponent; a number may have both.
///
/// `stoker.executors.builtins.payload` is the same in Python.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace stoker {

struct Range {
  std::int64_t least;
  std::int64_t most;
};

class Fields {
 public:
  using Names = std::initializer_list<std::string_view>;

  /// `unread` names fields whose arrays are left to their reader, who can split them among threads.
  explicit Fields(std::string_view payload, Names unread = {});

  /// The fields of a load type. A text names no size, so each keeps its default.
  static Fields of_sizes(std::string_view payload);

  void allow(Names names) const;

  /// The value of a field; its bytes stay those of the payload.
  std::optional<json::Value> find(std::string_view name) const;
  json::Value require(std::string_view name) const;

  std::optional<std::int64_t> integer(std::string_view name, Range range) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::optional<std::string> text(std::string_view name) const;
  /// A number, integer or not.
  std::optional<json::Value> number(std::string_view name) const;

 private:
  struct Field {
    std::string name;
    json::Value value;
  };

  void read_object(json::Scanner& scanner, Names unread);
  void add(std::string name, json::Value value, bool unread);

  std::vector<Field> fields_;
};

}  // namespace stoker
