#include "failure.h"

#include <system_error>
#include <utility>

namespace stoker {

Failure::Failure(std::string type, std::string message, bool retryable)
    : type_(std::move(type)), message_(std::move(message)), retryable_(retryable) {}

void refuse(const std::string& message) { throw Failure("invalid_payload", message, false); }

void fail_with_errno(const char* type, const std::string& what, int number) {
  throw Failure(type, what + ": " + std::generic_category().message(number), true);
}

}  // namespace stoker
