// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/progress.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale {

/// The name of an event. Every event has a name: `Event{}` does not compile, nor does an empty literal.
///
/// keeps   refers to the text and owns nothing: a literal, or lasting() text that outlives the sinks
class EventName {
 public:
  consteval EventName(char const* literal) : text_{literal} {
    if (text_.empty()) throw "chorale: an event needs a name";  // reported by the compiler
  }

  /// A name made at run time, such as a variable's in a plan; its text must live as long as every sink that gets it.
  static EventName lasting(std::string_view text) {
    CHORALE_EXPECTS(!text.empty(), "an event needs a name");
    auto name  = EventName{"?"};
    name.text_ = text;
    return name;
  }

  constexpr std::string_view text() const { return text_; }
  friend constexpr bool operator==(EventName a, EventName b) { return a.text_ == b.text_; }

 private:
  std::string_view text_;
};

/// The kind of work that an event timed: a row of the timeline, a part of `why-slow`.
enum class Category {
  step,           // a whole step, one event for each; contains the others
  compute,        // forward, backward, update
  communication,  // bytes in transit
  wait,           // for other ranks: no bytes of this rank in transit
  input,          // waiting for the next batch
  checkpoint,     // writing or reading one
};

inline constexpr auto categories = std::array{Category::step, Category::compute, Category::communication,
                                              Category::wait, Category::input,   Category::checkpoint};

constexpr std::string_view name_of(Category category) {
  switch (category) {
    case Category::step: return "step";
    case Category::compute: return "compute";
    case Category::communication: return "communication";
    case Category::wait: return "wait";
    case Category::input: return "input";
    case Category::checkpoint: return "checkpoint";
  }
  return "unknown";
}

/// An activity of a rank, and its time.
///
/// begin, end  of this process's steady clock: comparable within a host, and between hosts through ClockOffset
/// keeps       events of one rank and category do not overlap; events of the parts of a step come before the step's own
struct Event {
  using Time = std::chrono::steady_clock::time_point;

  EventName name;
  Category category  = Category::compute;
  Rank rank          = 0;
  std::uint64_t step = 0;
  Time begin{}, end{};
  std::size_t bytes      = 0;  // sent by this rank, exactly; 0: none
  std::uint32_t messages = 0;  // sent by this rank, exactly; 0: none

  constexpr std::chrono::nanoseconds duration() const { return end - begin; }
};
static_assert(sizeof(Event) == 64, "a cache line");

/// The metrics of a run after a step, for curves. A sink reads names and values only during the call.
///
/// keeps   means over all replicas, not of one; only the chief has them
struct Scalars {
  std::uint64_t step = 0;
  Span<MetricValue const> values;
  int epoch = -1;  // 0-based, of means of a whole epoch; -1: of its steps so far
};

}  // namespace chorale
