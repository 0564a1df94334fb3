#include "check.h"

#include <csignal>
#include <exception>
#include <iostream>
#include <utility>
#include <vector>

namespace stoker::test {

namespace {

struct Case {
  const char* name;
  std::function<void()> body;
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

int failures = 0;

void run(const Case& test) {
  const int before = failures;
  try {
    test.body();
  } catch (const std::exception& error) {
    report(test.name, 0, std::string("threw: ") + error.what());
  }
  if (failures != before) std::cerr << "FAILED " << test.name << "\n";
}

}  // namespace

Registration::Registration(const char* name, std::function<void()> body) { cases().push_back({name, std::move(body)}); }

void report(const char* file, int line, const std::string& what) {
  ++failures;
  std::cerr << file << ":" << line << ": " << what << "\n";
}

int run_all() {
  std::signal(SIGPIPE, SIG_IGN);
  for (const Case& test : cases()) run(test);
  std::cout << cases().size() << " tests, " << failures << " failed checks\n";
  return failures == 0 ? 0 : 1;
}

}  // namespace stoker::test

int main() { return stoker::test::run_all(); }
