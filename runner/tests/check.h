#pragma once

/// Just enough of a test framework: named cases, and checks that say where they failed and with what.

#include <functional>
#include <sstream>
#include <string>

#include "failure.h"

namespace stoker::test {

struct Registration {
  Registration(const char* name, std::function<void()> body);
};

void report(const char* file, int line, const std::string& what);

template <class Got, class Wanted>
void equal(const Got& got, const Wanted& wanted, const char* file, int line) {
  if (got == wanted) return;
  std::ostringstream what;
  what << "got «" << got << "», wanted «" << wanted << "»";
  report(file, line, what.str());
}

/// The error type of the failure, or "" if there was none.
template <class Work>
std::string failure_of(const Work& work) {
  try {
    work();
    return "";
  } catch (const Failure& failure) {
    return failure.type();
  }
}

}  // namespace stoker::test

#define TEST(name)                                                          \
  static void name();                                                       \
  static const ::stoker::test::Registration registration_##name(#name, name); \
  static void name()
#define EQUAL(got, wanted) ::stoker::test::equal((got), (wanted), __FILE__, __LINE__)
#define CHECK(condition) ::stoker::test::equal(static_cast<bool>(condition), true, __FILE__, __LINE__)
#define REFUSED(work) EQUAL(::stoker::test::failure_of([&] { (void)(work); }), "invalid_payload")
