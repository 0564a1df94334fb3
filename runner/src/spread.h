#pragma once

#include <cstddef>
#include <functional>

namespace stoker {

/// Do `work(0)` … `work(count - 1)` on up to `threads` threads, this one among them. What fails does so as if they had
/// been done in order: the failure of the lowest index is thrown, after all threads have ended.
void spread(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

}  // namespace stoker
