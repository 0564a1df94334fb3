#pragma once

#include <cstddef>

#include "board.h"

namespace stoker {

/// Run jobs one after the other as they come in on `in`, and answer on `out`, until `in` ends.
///
/// Answers are gathered and sent together, but never held back: they are sent when no further request is complete,
/// before a job whose type is not known to be short, and after a millisecond at the latest, by a small thread, if a job
/// turns out longer than its type used to be.
///
/// Throws `ProtocolError` when the requests make no sense. Returns when nobody reads the answers any more.
void serve(int in, int out, Board& board, std::size_t max_result_bytes);

}  // namespace stoker
