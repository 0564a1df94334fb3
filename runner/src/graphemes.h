#pragma once

#include <string>
#include <string_view>

namespace stoker {

/// The text with its grapheme clusters in reverse order, each of them left as it is: what a reader sees as one
/// character stays one. By the extended clusters of UAX #29. The text must be valid UTF-8.
std::string reverse_graphemes(std::string_view text);

}  // namespace stoker
