// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace chorale::test {

/// State of a thread of this process, by its name: "S" if it sleeps, "R" if it runs; empty if there is none.
inline std::string state_of(std::string const& thread) {
  for (auto const& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    auto text = std::string{};
    std::getline(std::ifstream{task.path() / "stat"}, text);
    if (text.find("(" + thread + ")") != std::string::npos) return text.substr(text.rfind(')') + 2, 1);
  }
  return {};
}

/// Waits until a thread of this process sleeps; returns false if it does not within a minute.
inline bool await_sleep(std::string const& thread) {
  auto const deadline = Deadline::after(std::chrono::seconds{60});
  while (state_of(thread) != "S") {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace chorale::test
