// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/event.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// The seconds that one rank spent over some steps, by category. See Tally::spent().
struct Spent {
  std::uint64_t steps = 0;
  std::array<double, categories.size()> seconds{};  // in the order of Category; [step]: of whole steps

  double& operator[](Category category) { return seconds[static_cast<std::size_t>(category)]; }
  double operator[](Category category) const { return seconds[static_cast<std::size_t>(category)]; }
};

/// The time of a step of a rank by itself, without waits for other ranks: with them, steps take equally long on all.
struct Pace {
  Rank rank;
  double p50, p99;  // seconds
};

namespace detail {

/// A duration as text: 2.41 s, 12.30 ms, 870 us, 12 ns, 0.
inline std::string duration_text(double seconds) {
  if (seconds >= 1) return formatted("%.2f s", seconds);
  if (seconds >= 1e-3) return formatted("%.2f ms", seconds * 1e3);
  if (seconds >= 1e-6) return formatted("%.3g us", seconds * 1e6);
  return seconds > 0 ? formatted("%.0f ns", seconds * 1e9) : "0";
}

inline char const* advice(std::string_view dominates) {
  if (dominates == "compute") return "this is what a step is for; more replicas, or a larger batch for each.";
  if (dominates == "communication")
    return "a larger batch, another Reduce (AutoAllReduce measures them), or fewer bytes (Compressed<bf16>).";
  if (dominates == "wait") return "look at the straggler line: a slower rank, or shares of unequal size.";
  if (dominates == "input") return "prefetch(), cache() after the expensive map, or more threads that read.";
  if (dominates == "checkpoint") return "checkpoints less often.";
  return "recording what else the program does in a step: nothing was told about it.";
}

}  // namespace detail

/// One sentence: the part that takes most of a step, how much more than the next part, and advice. With a prediction, a
/// second line compares it with the measurement.
///
///   why slow: communication takes 12.30 ms of 19.90 ms of a step (62 %), 2.1 times compute (5.90 ms); then wait
///   1.10 ms, input 600 us, checkpoint 0. Try: ...
///
/// predicted  seconds of one step, from a model
/// keeps      time in two overlapping parts counts in both, so that parts may add up to more than a step; time without
///            an event is called "unrecorded"
inline std::string why_slow(Spent const& spent, std::optional<double> predicted = {}) {
  if (spent.steps == 0 || !(spent[Category::step] > 0)) return "why slow: not a single step was recorded.\n";
  auto const each = 1.0 / static_cast<double>(spent.steps);
  auto const step = spent[Category::step] * each;
  auto parts      = std::vector<std::pair<std::string_view, double>>{};
  auto rest       = step;
  for (auto const category : categories) {
    if (category == Category::step) continue;
    parts.emplace_back(name_of(category), spent[category] * each);
    rest -= parts.back().second;
  }
  if (rest > 0.005 * step) parts.emplace_back("unrecorded", rest);
  std::ranges::stable_sort(parts, std::ranges::greater{}, &decltype(parts)::value_type::second);

  using detail::duration_text;
  auto const& [first, most]  = parts[0];
  auto const& [second, next] = parts[1];
  auto text = "why slow: " + std::string{first} + " takes " + duration_text(most) + " of " + duration_text(step) +
              " of a step (" + formatted("%.0f %%", 100 * most / step) + "), ";
  if (next > 0) text += formatted("%.1f times ", most / next) + std::string{second} + " (" + duration_text(next) + ")";
  else text += "and nothing else takes any";
  for (std::size_t i = 2; i < parts.size() && next > 0; ++i)
    text += (i == 2 ? "; then " : ", ") + std::string{parts[i].first} + " " + duration_text(parts[i].second);
  text += ". Try: " + std::string{detail::advice(first)} + "\n";
  if (predicted)
    text += "step: " + duration_text(step) + " measured, " + duration_text(*predicted) + " predicted (" +
            (*predicted > 0 ? formatted("%.2f times", step / *predicted) : "no ratio") + ")\n";
  return text;
}

/// One line that names the slowest rank, or none; then the paces of all ranks, or of the eight slowest.
///
///   straggler: rank 2 needs 22.90 ms for its part of a step (p50; p99 40.10 ms), 1.51 times the middle rank's; p50/p99
///   in ms: 2 22.90/40.10, 1 15.20/16.30, 0 15.10/16.00
///
/// threshold   ratio to the middle rank (the faster of two) above which a rank is called slow
inline std::string straggler_line(Span<Pace const> paces, double threshold = 1.1) {
  if (paces.empty()) return "straggler: not a single step was recorded.\n";
  using detail::duration_text;
  auto sorted = std::vector<Pace>(paces.begin(), paces.end());
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &Pace::p50);
  auto const& slowest = sorted.front();
  auto const middle   = sorted[sorted.size() / 2].p50;  // slowest first: of two in the middle the faster
  auto text           = std::string{};
  if (middle > 0 && slowest.p50 > threshold * middle)
    text = "straggler: rank " + std::to_string(slowest.rank) + " needs " + duration_text(slowest.p50) +
           " for its part of a step (p50; p99 " + duration_text(slowest.p99) + "), " +
           formatted("%.2f", slowest.p50 / middle) + " times the middle rank's";
  else
    text = "straggler: none; ranks need " + duration_text(sorted.back().p50) + " to " + duration_text(slowest.p50) +
           " for their part of a step (p50)";
  text += "; p50/p99 in ms: ";
  auto const shown = std::min<std::size_t>(sorted.size(), 8);
  for (std::size_t i = 0; i < shown; ++i)
    text.append(i == 0 ? "" : ", ") +=
        std::to_string(sorted[i].rank) + formatted(" %.2f/%.2f", sorted[i].p50 * 1e3, sorted[i].p99 * 1e3);
  if (shown < sorted.size()) text += ", and " + std::to_string(sorted.size() - shown) + " faster ones";
  return text + "\n";
}

}  // namespace chorale
