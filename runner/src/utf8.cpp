#include "utf8.h"

namespace stoker::utf8 {

namespace {

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

bool continues(std::string_view text, std::size_t at) {
  return at < text.size() && (byte_at(text, at) & 0xC0U) == 0x80U;
}

/// The range of the second byte is where overlong forms, surrogates and characters past the end show.
bool second_fits(unsigned first, unsigned second) {
  switch (first) {
    case 0xE0: return second >= 0xA0;
    case 0xED: return second <= 0x9F;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second <= 0x8F;
    default: return true;
  }
}

std::size_t announced_length(unsigned first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

void push(std::string& out, char32_t bits) { out.push_back(static_cast<char>(static_cast<unsigned char>(bits))); }

}  // namespace

std::size_t length_at(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  const std::size_t length = announced_length(first);
  if (length < 2) return length;
  for (std::size_t i = 1; i < length; ++i) {
    if (!continues(text, at + i)) return 0;
  }
  return second_fits(first, byte_at(text, at + 1)) ? length : 0;
}

std::size_t length_of(char first) { return announced_length(static_cast<unsigned char>(first)); }

char32_t decode_at(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  const std::size_t length = announced_length(first);
  if (length < 2) return first;
  char32_t character = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) character = (character << 6) | (byte_at(text, at + i) & 0x3FU);
  return character;
}

void append(std::string& out, char32_t character) {
  if (character < 0x80) {
    push(out, character);
  } else if (character < 0x800) {
    push(out, 0xC0U | (character >> 6));
    push(out, 0x80U | (character & 0x3FU));
  } else if (character < 0x10000) {
    push(out, 0xE0U | (character >> 12));
    push(out, 0x80U | ((character >> 6) & 0x3FU));
    push(out, 0x80U | (character & 0x3FU));
  } else {
    push(out, 0xF0U | (character >> 18));
    push(out, 0x80U | ((character >> 12) & 0x3FU));
    push(out, 0x80U | ((character >> 6) & 0x3FU));
    push(out, 0x80U | (character & 0x3FU));
  }
}

std::string_view first(std::string_view text, std::size_t characters) {
  std::size_t at = 0;
  for (; characters > 0 && at < text.size(); --characters) at += length_of(text[at]);
  return text.substr(0, at);
}

}  // namespace stoker::utf8
