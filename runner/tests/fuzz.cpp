/// Feeds the runner what it should never get: every file of a corpus, then mutations of them and of valid payloads, for a
/// bounded time. All it may do is answer; the sanitizers and the checks here notice anything else.
///
///   stoker-runner-fuzz --seconds 5 --seed 1 corpus/

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "frames.h"
#include "job.h"
#include "json.h"
#include "posix.h"

namespace {

using Random = std::mt19937_64;

/// Types whose work does not grow with a number in the payload: a mutation could ask the others for a month of it.
constexpr const char* types[] = {"add_numbers", "echo", "fail", "large_array_sum", "reverse_string"};

std::size_t below(Random& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }

std::vector<std::string> read_corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // a seed must mean the same everywhere
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

std::string nested(const std::string& open, std::size_t depth) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  return text;
}

/// What is too large to keep as files.
std::vector<std::string> generated() {
  return {nested("[", 256) + nested("]", 256), nested("[", 100'000), nested("{\"a\":", 100'000), std::string(100'000, '9'),
          "{\"numbers\":[" + std::string(100'000, ',') + "]}", "{\"numbers\":[1" + nested(",1", 50'000) + "]}",
          "{\"x\":1e" + std::string(990, '9') + ",\"y\":1}", "{\"text\":\"" + nested("\\ud83d\\ude00", 5'000) + "\"}",
          "{\"text\":\"" + nested("\xcc\x81", 50'000) + "\"}", "\"" + std::string(100'000, '\\')};
}

/// Outcomes must be JSON themselves, and completed or refused.
void run_one(const std::string& type, const std::string& payload, unsigned threads) {
  stoker::Job job;
  job.id = "fuzz";
  job.type = type;
  job.payload = payload;
  job.threads = threads;
  const stoker::Outcome outcome = stoker::run_job(*stoker::find_type(type), job);
  const bool failed_otherwise = outcome.ending == stoker::Ending::error && type != "fail";
  try {
    stoker::json::check(outcome.body);
    if (!failed_otherwise) return;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  std::cerr << type << " answered " << outcome.body << " to: " << payload << "\n";
  std::exit(1);
}

void run_all_types(const std::string& payload) {
  for (const char* type : types) {
    for (const unsigned threads : {1U, 3U}) run_one(type, payload, threads);
  }
  // The other types too, if the payload is surely not one that they accept.
  try {
    stoker::json::check(payload);
  } catch (const std::exception&) {
    for (const stoker::JobType& type : stoker::job_types()) {
      if (type.name != "fail") run_one(std::string(type.name), payload, 1);
    }
  }
}

void decode_as_frames(const std::string& bytes) {
  try {
    const auto size = stoker::frame_size(bytes);
    if (size && *size <= bytes.size()) stoker::decode_request(std::string_view(bytes).substr(4, *size - 4));
    stoker::decode_request(bytes);
  } catch (const stoker::ProtocolError&) {
  }
}

std::string mutated(std::string text, const std::vector<std::string>& corpus, Random& random) {
  static const std::string spice = "{}[]\",:0129.eE+-\\u \n\ttfnd8";
  for (std::size_t changes = 1 + below(random, 4); changes > 0; --changes) {
    const std::size_t at = text.empty() ? 0 : below(random, text.size());
    switch (below(random, 6)) {
      case 0: if (!text.empty()) text[at] = static_cast<char>(static_cast<unsigned char>(random())); break;
      case 1: text.erase(at, 1 + below(random, 4)); break;
      case 2: text.insert(at, 1, spice[below(random, spice.size())]); break;
      case 3: text.insert(at, text.substr(below(random, text.size() + 1), 1 + below(random, 16))); break;
      case 4: text.resize(at); break;
      default: text.insert(at, corpus[below(random, corpus.size())].substr(0, 200)); break;
    }
  }
  return text;
}

std::size_t fuzz(const std::vector<std::string>& corpus, double seconds, Random& random) {
  const double end = stoker::monotonic_seconds() + seconds;
  std::size_t runs = 0;
  while (stoker::monotonic_seconds() < end) {
    const std::string text = mutated(corpus[below(random, corpus.size())], corpus, random);
    run_all_types(text);
    decode_as_frames(text);
    ++runs;
  }
  return runs;
}

}  // namespace

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  if (count != 6) {
    std::cerr << "usage: stoker-runner-fuzz --seconds N --seed N CORPUS\n";
    return 2;
  }
  std::vector<std::string> corpus = read_corpus(arguments[5]);
  for (const std::string& text : corpus) run_all_types(text);
  for (const std::string& text : generated()) run_all_types(text);
  Random random(std::strtoull(arguments[4], nullptr, 10));
  const std::size_t runs = fuzz(corpus, std::strtod(arguments[2], nullptr), random);
  std::cout << corpus.size() << " files, " << runs << " mutations\n";
  return 0;
}
