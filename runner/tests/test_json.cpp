#include "check.h"
#include "fields.h"
#include "json.h"
#include "json_write.h"

using stoker::Fields;
namespace json = stoker::json;

namespace {

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string quoted(std::string_view text) {
  std::string out;
  json::append_quoted(out, text);
  return out;
}

std::string text_of(std::string_view raw) { return json::Scanner(raw).read_string(); }

}  // namespace

TEST(accepts_json) {
  const char* const texts[] = {"null", " true\n", "[]", "[ ]", "{}", "{ \"a\" : [1, {\"b\": \"c\"}] }", "-0", "0.5",
                               "1e5",  "1E+2",    "1e-400", "\"\\u0000\"", "\"\\ud83d\\ude00\"", "\"\x7f\"", "0e9999"};
  for (const char* text : texts) json::check(text);
  json::check(nested(json::max_depth));
  json::check(std::string(json::max_digits, '7'));
}

TEST(refuses_what_is_not_json) {
  const std::string_view texts[] = {
      "", " ", "nul", "nulll", "True", "[1,]", "[,1]", "[1 2]", "{\"a\":1,}", "{a:1}", "{\"a\" 1}", "{\"a\":}", "[", "{",
      "]", "1 2", "01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1", "NaN", "Infinity", "'a'", "\"", "\"\\", "\"\\u12",
      "\"\\u12g4\"", "\"\\x\"", "\"\n\"", "\"\\ud800\"", "\"\\ud800x\"", "\"\\udc00\"", "\"\\ud800\\ud800\"", "1e400",
      "\xef\xbb\xbf" "1", "[1]]", "{\"a\":1}}", "/**/1"};
  for (const std::string_view text : texts) REFUSED(json::check(text));
  REFUSED(json::check(std::string_view("1\0", 2)));
  REFUSED(json::check(std::string_view("\"\0\"", 3)));
  REFUSED(json::check(nested(json::max_depth + 1)));
  REFUSED(json::check(std::string(json::max_digits + 1, '7')));
  REFUSED(json::check(std::string(400, '7') + ".5"));
}

TEST(refuses_invalid_utf8) {
  const char* const texts[] = {"\"\x80\"",         "\"\xc0\xaf\"",         "\"\xc3\"",         "\"\xe0\x80\xaf\"",
                               "\"\xed\xa0\x80\"", "\"\xf0\x80\x80\xaf\"", "\"\xf4\x90\x80\x80\"", "\"\xf5\x80\x80\x80\"",
                               "\"\xff\"",         "\"\xe2\x82\""};
  for (const char* text : texts) REFUSED(json::check(text));
}

TEST(resolves_escapes) {
  EQUAL(text_of("\"a\\n\\u00e9\\ud83d\\ude00\\/\""), "a\n\xc3\xa9\xf0\x9f\x98\x80/");
  EQUAL(text_of("\"\\u0000\""), std::string(1, '\0'));
}

TEST(writes_only_the_escapes_that_json_demands) {
  EQUAL(quoted(std::string_view("\0\x1f\x7f\"\\/\n\b\xc3\xa9", 10)), "\"\\u0000\\u001f\x7f\\\"\\\\/\\n\\b\xc3\xa9\"");
}

TEST(fields_follow_the_rules) {
  const Fields fields(R"({"a": 1, "b": null, "a": 2, "t": "x\u0041", "n": 1.5, "y": true})");
  EQUAL(*fields.integer("a", {0, 9}), 2);
  CHECK(!fields.integer("b", {0, 9}));
  CHECK(!fields.find("missing"));
  EQUAL(*fields.text("t"), "xA");
  EQUAL(fields.number("n")->raw, "1.5");
  CHECK(fields.boolean("y", false));
  CHECK(fields.boolean("b", true));
  REFUSED(fields.allow({"a", "b", "t", "n"}));
  REFUSED(fields.require("b"));
  REFUSED(fields.integer("a", {3, 9}));
  REFUSED(fields.integer("n", {0, 9}));
  REFUSED(fields.integer("y", {0, 9}));
  REFUSED(fields.text("a"));
  REFUSED(fields.number("t"));
  REFUSED(fields.boolean("a", true));
}

TEST(fields_of_nothing) {
  Fields("null").allow({});
  Fields(" {} ").allow({});
  for (const char* text : {"[]", "1", "\"a\"", "true", "", "{", "null 1", "{} {}", "{\"a\":1"}) REFUSED(Fields(text));
  // The object around a field counts as a level.
  Fields("{\"a\":" + nested(json::max_depth - 1) + "}");
  REFUSED(Fields("{\"a\":" + nested(json::max_depth) + "}"));
}

TEST(an_unread_array_is_still_checked_when_it_is_replaced) {
  EQUAL(Fields(R"({"n": [1], "n": [2]})", {"n"}).require("n").raw, "[2]");
  REFUSED(Fields(R"({"n": [x], "n": [2]})", {"n"}));
  REFUSED(Fields(R"({"m": [x], "m": [2]})", {"n", "m"}));
  REFUSED(Fields(R"({"n": [1, [2], 3]})", {"n"}));
  REFUSED(Fields(R"({"n": [1, 2)", {"n"}));
}

TEST(a_text_names_no_size) {
  Fields::of_sizes(R"( "test task" )").allow({});
  EQUAL(Fields::of_sizes(R"({"n": 3})").require("n").raw, "3");
  for (const char* text : {"[]", "1", "\"a", "\"a\" 1", "a"}) REFUSED(Fields::of_sizes(text));
}
