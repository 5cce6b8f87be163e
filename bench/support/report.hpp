// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks share: children that measure, medians, and two ways to print.
#pragma once

#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) throw std::runtime_error{"chorale: the median of no measurement"};
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The interpreter with the peers' packages, for a command line: the first that CHORALE_PYTHON names, or Debian's.
inline std::string python() {
  auto const* const named = std::getenv("CHORALE_PYTHON");
  auto const all          = std::string{named != nullptr ? named : "/usr/bin/python3"};
  return "'" + all.substr(0, all.find(':')) + "'";
}

/// Runs a shell command and returns what it wrote to standard output and standard error.
///
/// throws  std::runtime_error when it does not end with 0: its output is the reason
inline std::string output_of(std::string const& command) {
  auto const pipe =
      std::unique_ptr<FILE, int (*)(FILE*)>{popen((command + " 2>&1; echo \"exit $?\"").c_str(), "r"), pclose};
  if (!pipe) throw std::runtime_error{"chorale: cannot start: " + command};
  auto text  = std::string{};
  auto block = std::array<char, 4096>{};
  for (std::size_t n = 0; (n = fread(block.data(), 1, block.size(), pipe.get())) > 0;) text.append(block.data(), n);
  if (!text.ends_with("exit 0\n")) throw std::runtime_error{"chorale: this failed: " + command + "\n" + text};
  return text;
}

/// True if the interpreter has PyTorch. Says that the peer is skipped if it does not.
inline bool has_torch() {
  try {
    output_of(python() + " -c 'import torch'");
    return true;
  } catch (std::exception const&) {
    std::fprintf(stderr, "SKIPPED: PyTorch: %s has no torch\n         Try: apt-get install python3-torch\n",
                 python().c_str());
    return false;
  }
}

/// The number behind the last occurrence of `label` in a text; commas between digits are skipped.
inline double number_after(std::string const& text, std::string const& label) {
  auto const at = text.rfind(label);
  if (at == std::string::npos) throw std::runtime_error{"chorale: no \"" + label + "\" in:\n" + text};
  auto digits = std::string{};
  for (char const c : text.substr(at + label.size(), 60)) {
    if (c == '\n' && !digits.empty()) break;
    if (c != ',' && c != ':' && c != ' ') digits += c;
    else if (c == ' ' && !digits.empty()) break;
  }
  return std::stod(digits);
}

inline std::string this_program() {
  auto path      = std::array<char, 4096>{};
  auto const got = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (got < 0) throw std::runtime_error{"chorale: cannot read the name of this program"};
  return {path.data(), static_cast<std::size_t>(got)};
}

/// A script of bench/support: where Bazel puts it, else below the current folder.
inline std::string script(std::string const& name) {
  auto const path   = "bench/support/" + name;
  auto const beside = this_program() + ".runfiles/chorale/" + path;
  for (auto const& place : {beside, path})
    if (access(place.c_str(), R_OK) == 0) return place;
  throw std::runtime_error{"chorale: " + path + " is not here. Try: to start this in the folder of the sources."};
}

/// The processor's name and the number of cores.
inline std::string machine() {
  auto file = std::ifstream{"/proc/cpuinfo"};
  auto name = std::string{"unknown processor"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  return name + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores";
}

/// One row of a report: `{"bench": ..., "key": value, ...}` on a line, or aligned for a person.
class Row {
 public:
  explicit Row(std::string name) : name_{std::move(name)} {}

  Row& add(std::string const& key, std::string const& value) {
    json_ += ", \"" + key + "\": \"" + value + "\"";
    text_ += "  " + key + " " + value;
    return *this;
  }
  Row& add(std::string const& key, double value, char const* format = "%.4g") {
    auto text = std::array<char, 40>{};
    std::snprintf(text.data(), text.size(), format, value);
    json_ += ", \"" + key + "\": " + text.data();
    text_ += "  " + key + " " + text.data();
    return *this;
  }
  /// Adds what the first line of a report for a person says once.
  Row& add_to_json(std::string const& key, std::string const& value) {
    json_ += ", \"" + key + "\": \"" + value + "\"";
    return *this;
  }
  void print(bool as_json) const {
    if (as_json) std::printf("{\"bench\": \"%s\"%s}\n", name_.c_str(), json_.c_str());
    else std::printf("%-34s%s\n", name_.c_str(), text_.c_str());
    std::fflush(stdout);
  }

 private:
  std::string name_, json_, text_;
};

}  // namespace bench
