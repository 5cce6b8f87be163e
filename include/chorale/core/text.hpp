// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace chorale {

/// Writes one line with the library's name to the standard error stream, in one piece also when other threads or
/// processes write there.
inline void log_line(std::string const& line) {
  auto const text = "chorale: " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// A time as error messages have it: "1500 ms", "60 s".
inline std::string seconds_text(std::chrono::nanoseconds time) {
  auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return ms % 1'000 == 0 ? std::to_string(ms / 1'000) + " s" : std::to_string(ms) + " ms";
}

}  // namespace chorale
