#include "fields.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "failure.h"
#include "json_write.h"
#include "utf8.h"

namespace stoker {

namespace {

using json::Kind;
using json::Value;

constexpr std::size_t shown_characters = 60;

/// A name from the payload as a message may show it: quoted, and not longer than a person would read.
std::string shown(std::string_view name) {
  std::string out;
  json::append_quoted(out, utf8::first(name, shown_characters));
  return out;
}

[[noreturn]] void wrong_type(std::string_view name, const char* wanted, Kind got) {
  refuse(std::string(name) + " must be " + wanted + ", not " + json::name_of(got));
}

[[noreturn]] void out_of_range(std::string_view name, Range range) {
  refuse(std::string(name) + " must be between " + std::to_string(range.least) + " and " + std::to_string(range.most));
}

}  // namespace

Fields Fields::of_sizes(std::string_view payload) {
  json::Scanner scanner(payload);
  scanner.skip_space();
  if (scanner.peek() != '"') return Fields(payload);
  json::check(payload);
  return Fields("null");
}

Fields::Fields(std::string_view payload, Names unread) {
  json::Scanner scanner(payload);
  scanner.skip_space();
  if (scanner.peek() == '{') {
    read_object(scanner, unread);
  } else if (const Kind kind = scanner.skip_value().kind; kind != Kind::null) {
    scanner.expect_end();
    refuse(std::string("the payload must be an object, not ") + json::name_of(kind));
  }
  scanner.expect_end();
}

void Fields::read_object(json::Scanner& scanner, Names unread) {
  scanner.expect('{');
  if (scanner.take('}')) return;
  do {
    std::string name = scanner.read_string();
    scanner.expect(':');
    const bool left = std::find(unread.begin(), unread.end(), name) != unread.end();
    const Value value = left && scanner.peek() == '[' ? scanner.skip_unread_array() : scanner.skip_value(1);
    add(std::move(name), value, left);
  } while (scanner.take(','));
  scanner.expect('}');
}

void Fields::add(std::string name, Value value, bool unread) {
  const auto same = [&](const Field& field) { return field.name == name; };
  const auto found = std::find_if(fields_.begin(), fields_.end(), same);
  if (found == fields_.end()) {
    fields_.push_back({std::move(name), value});
    return;
  }
  // Nobody will read the array that is replaced here, so this is the last chance to see that it is none.
  if (unread) json::check(found->value.raw);
  found->value = value;
}

void Fields::allow(Names names) const {
  for (const Field& field : fields_) {
    if (std::find(names.begin(), names.end(), field.name) != names.end()) continue;
    std::string known;
    for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
    refuse("unknown field " + shown(field.name) + "; known are: " + known);
  }
}

std::optional<Value> Fields::find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name == name && field.value.kind != Kind::null) return field.value;
  }
  return std::nullopt;
}

Value Fields::require(std::string_view name) const {
  const std::optional<Value> value = find(name);
  if (!value) refuse(std::string(name) + " is required");
  return *value;
}

std::optional<std::int64_t> Fields::integer(std::string_view name, Range range) const {
  const std::optional<Value> value = find(name);
  if (!value) return std::nullopt;
  if (value->kind != Kind::integer) wrong_type(name, "an integer", value->kind);
  std::int64_t result = 0;
  const char* end = value->raw.data() + value->raw.size();
  const bool fits = std::from_chars(value->raw.data(), end, result).ec == std::errc();
  if (!fits || result < range.least || result > range.most) out_of_range(name, range);
  return result;
}

bool Fields::boolean(std::string_view name, bool otherwise) const {
  const std::optional<Value> value = find(name);
  if (!value) return otherwise;
  if (value->kind != Kind::boolean) wrong_type(name, "a boolean", value->kind);
  return value->raw == "true";
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const std::optional<Value> value = find(name);
  if (!value) return std::nullopt;
  if (value->kind != Kind::string) wrong_type(name, "a string", value->kind);
  return json::Scanner(value->raw).read_string();
}

std::optional<Value> Fields::number(std::string_view name) const {
  const std::optional<Value> value = find(name);
  if (value && value->kind != Kind::integer && value->kind != Kind::real) wrong_type(name, "a number", value->kind);
  return value;
}

}  // namespace stoker
