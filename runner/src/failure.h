#pragma once

#include <exception>
#include <string>

namespace stoker {

/// Why a job did not complete. `type` is one of the words in docs/reference/job-types.md; `retryable` says
/// whether another attempt could end differently.
class Failure : public std::exception {
 public:
  Failure(std::string type, std::string message, bool retryable);

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& type() const noexcept { return type_; }
  const std::string& message() const noexcept { return message_; }
  bool retryable() const noexcept { return retryable_; }

 private:
  std::string type_;
  std::string message_;
  bool retryable_;
};

/// The payload cannot be used, and no retry will change that.
[[noreturn]] void refuse(const std::string& message);

/// The operating system said no; `what` names what we asked of it and `number` is its errno.
[[noreturn]] void fail_with_errno(const char* type, const std::string& what, int number);

}  // namespace stoker
