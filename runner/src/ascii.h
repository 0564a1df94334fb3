#pragma once

namespace stoker {

/// The characters that JSON calls whitespace.
constexpr bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace stoker
