#include "graphemes.h"

#include <algorithm>
#include <cstddef>

#include "grapheme_table.h"
#include "utf8.h"

namespace stoker {

namespace {

constexpr char32_t hangul_first = 0xAC00;
constexpr char32_t hangul_last = 0xD7A3;
constexpr char32_t hangul_final_consonants = 28;

/// The class of a character, as a letter of the table.
char kind_of(char32_t character) {
  if (character >= 0x20 && character < 0x7F) return 'o';
  if (character >= hangul_first && character <= hangul_last) {
    return (character - hangul_first) % hangul_final_consonants == 0 ? 'v' : 't';
  }
  const auto after = std::upper_bound(grapheme_ranges.begin(), grapheme_ranges.end(), character,
                                      [](char32_t wanted, const GraphemeRange& range) { return wanted < range.first; });
  return std::prev(after)->kind;
}

bool one_of(char kind, std::string_view kinds) { return kinds.find(kind) != std::string_view::npos; }

/// What the rules need to know of the characters before a place in the text.
class Before {
 public:
  /// Whether a character of this class belongs to the cluster that ends here. The numbers are those of UAX #29.
  bool joins(char next) const {
    if (last_ == '\0') return true;
    if (last_ == 'r' && next == 'n') return true;                        // GB3
    if (one_of(last_, "rnc") || one_of(next, "rnc")) return false;       // GB4, GB5
    if (joins_hangul(next)) return true;                                 // GB6, GB7, GB8
    if (one_of(next, "exyzm") || last_ == 'p') return true;              // GB9, GB9a, GB9b
    if (next == 'C') return conjunct_ == Conjunct::linked;               // GB9c
    if (next == 'P') return picture_ == Picture::joined;                 // GB11
    return next == 'i' && odd_indicators_;                               // GB12, GB13
  }

  void pass(char kind) {
    picture_ = next_picture(kind);
    conjunct_ = next_conjunct(kind);
    odd_indicators_ = kind == 'i' && !odd_indicators_;
    last_ = kind;
  }

 private:
  enum class Picture { none, extended, joined };
  enum class Conjunct { none, begun, linked };

  bool joins_hangul(char next) const {
    if (last_ == 'L') return one_of(next, "LVvt");
    if (one_of(last_, "vV")) return one_of(next, "VT");
    return one_of(last_, "tT") && next == 'T';
  }

  Picture next_picture(char kind) const {
    if (kind == 'P') return Picture::extended;
    if (picture_ != Picture::extended) return Picture::none;
    if (kind == 'z') return Picture::joined;
    return one_of(kind, "exy") ? Picture::extended : Picture::none;
  }

  Conjunct next_conjunct(char kind) const {
    if (kind == 'C') return Conjunct::begun;
    if (conjunct_ == Conjunct::none) return Conjunct::none;
    if (kind == 'x') return Conjunct::linked;
    return one_of(kind, "ez") ? conjunct_ : Conjunct::none;
  }

  char last_ = '\0';
  Picture picture_ = Picture::none;
  Conjunct conjunct_ = Conjunct::none;
  bool odd_indicators_ = false;
};

}  // namespace

std::string reverse_graphemes(std::string_view text) {
  std::string out(text.size(), '\0');
  std::size_t written = text.size();
  std::size_t start = 0;
  const auto put_cluster = [&](std::size_t end) {
    written -= end - start;
    text.copy(out.data() + written, end - start, start);
    start = end;
  };
  Before before;
  for (std::size_t at = 0; at < text.size(); at += utf8::length_of(text[at])) {
    const char kind = kind_of(utf8::decode_at(text, at));
    if (!before.joins(kind)) put_cluster(at);
    before.pass(kind);
  }
  put_cluster(text.size());
  return out;
}

}  // namespace stoker
