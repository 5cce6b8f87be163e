// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/observe/event.hpp>
#include <chorale/observe/why_slow.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace chorale {

/// A sink that accumulates events per rank, name and category. Times are measured; bytes and messages are exact.
///
/// keeps   after the first step with a new name or rank, take() allocates nothing
/// cost    take(): a lock, and a search in the lines
class Tally {
 public:
  /// All events of one rank with one name and category.
  struct Line {
    Rank rank;
    EventName name;
    Category category;
    std::uint64_t events = 0, messages = 0, bytes = 0;
    std::chrono::nanoseconds time{0};
  };

  void take(Event const& event) noexcept {
    auto const lock = std::lock_guard{mutex_};
    try {
      auto& line = line_of(event);
      ++line.events;
      line.messages += event.messages;
      line.bytes += event.bytes;
      line.time += event.duration();
      rank_of(event.rank).take(event);
    } catch (...) {  // no memory for a new name
      ++dropped_;
    }
  }
  void flush() const noexcept {}

  /// The lines in the order of ranks; lines of one rank in the order of their first events.
  std::vector<Line> lines() const {
    auto const lock = std::lock_guard{mutex_};
    auto lines      = lines_;
    std::ranges::stable_sort(lines, {}, &Line::rank);
    return lines;
  }

  /// The time of a rank by category, for why_slow().
  Spent spent(Rank rank) const {
    auto const lock = std::lock_guard{mutex_};
    auto spent      = Spent{};
    for (auto const& line : lines_) {
      if (line.rank != rank) continue;
      spent[line.category] += std::chrono::duration<double>(line.time).count();
      if (line.category == Category::step) spent.steps += line.events;
    }
    return spent;
  }

  /// The pace of each rank by itself, over its last 1024 steps, for straggler_line().
  std::vector<Pace> paces() const {
    auto const lock = std::lock_guard{mutex_};
    auto paces      = std::vector<Pace>{};
    for (auto const& rank : ranks_)
      if (rank.steps > 0) paces.push_back(rank.pace());
    std::ranges::sort(paces, {}, &Pace::rank);
    return paces;
  }

  /// Events that were not counted because there was no memory for a new name.
  std::uint64_t dropped() const {
    auto const lock = std::lock_guard{mutex_};
    return dropped_;
  }

 private:
  /// The last steps of one rank.
  struct Steps {
    Rank rank           = 0;
    std::uint64_t steps = 0;
    std::chrono::nanoseconds own{0}, others{0};  // of the current step
    std::array<float, 1024> last{};              // seconds, a ring

    void take(Event const& event) {
      switch (event.category) {
        case Category::compute:
        case Category::input:
        case Category::checkpoint: own += event.duration(); return;
        case Category::communication:
        case Category::wait: others += event.duration(); return;
        case Category::step: break;
      }
      auto const time = own.count() > 0 ? own : std::max(event.duration() - others, std::chrono::nanoseconds{0});
      last[steps++ % last.size()] = std::chrono::duration<float>(time).count();
      own = others = {};
    }

    Pace pace() const {
      auto sorted  = last;
      auto const n = static_cast<std::size_t>(std::min<std::uint64_t>(steps, sorted.size()));
      std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(n));
      return {rank, sorted[(n - 1) / 2], sorted[(n * 99 + 99) / 100 - 1]};
    }
  };

  Line& line_of(Event const& event) {
    for (auto& line : lines_)
      if (line.rank == event.rank && line.category == event.category && line.name == event.name) return line;
    return lines_.emplace_back(Line{event.rank, event.name, event.category});
  }
  Steps& rank_of(Rank rank) {
    for (auto& steps : ranks_)
      if (steps.rank == rank) return steps;
    ranks_.emplace_back().rank = rank;
    return ranks_.back();
  }

  std::mutex mutable mutex_;
  std::vector<Line> lines_;
  std::vector<Steps> ranks_;
  std::uint64_t dropped_ = 0;
};

}  // namespace chorale
