#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stoker::utf8 {

/// How many bytes the character at `at` takes, or 0 when it is not valid UTF-8: overlong forms, surrogates,
/// anything past U+10FFFF and cut-off sequences are all invalid.
std::size_t length_at(std::string_view text, std::size_t at);

/// The character at `at`; the text must be valid and `at` the beginning of a character.
char32_t decode_at(std::string_view text, std::size_t at);

/// The number of bytes of a character, by its first byte; the text must be valid.
std::size_t length_of(char first);

void append(std::string& out, char32_t character);

/// At most `characters` characters from the beginning; the text must be valid.
std::string_view first(std::string_view text, std::size_t characters);

}  // namespace stoker::utf8
