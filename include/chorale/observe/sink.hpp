// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/observe/event.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <tuple>
#include <type_traits>

namespace chorale {

/// A sink of events, from any thread. flush() reports its errors, because an event often ends in a destructor.
template <class S>
concept EventSink = requires(S& sink, Event const& event) {
  { sink.take(event) } noexcept -> std::same_as<void>;
};

/// A sink of the metrics of steps, in the order of steps, from one thread.
template <class S>
concept ScalarSink = requires(S& sink, Scalars const& scalars) {
  { sink.take(scalars) } -> std::same_as<void>;
};

/// A destination for the records of a run: Timeline, Tally, TensorBoardRun, CsvLog, a Fanout of them, or NullSink.
template <class S>
concept Sink = (EventSink<S> || ScalarSink<S>) && requires(S& sink) {
  { sink.flush() } -> std::same_as<void>;  // all that was taken is written, or an Error is thrown
};

/// True if a sink of type S uses its records. If false, no clock is read and no record is made.
template <class S> inline constexpr bool observed = true;

/// A sink that ignores all records.
///
/// cost    none: a function that records to it compiles to the same code as one that records nothing
struct NullSink {
  constexpr void take(Event const&) const noexcept {}
  constexpr void take(Scalars const&) const noexcept {}
  constexpr void flush() const noexcept {}
};

template <> inline constexpr bool observed<NullSink> = false;

/// A sink that forwards to several sinks; each gets the records that it takes.
///
///   auto sink = Fanout{timeline, tally, curves};
///
/// keeps   refers to the sinks, which must outlive it
/// throws  flush() calls flush() of every sink, then rethrows the first failure
template <Sink... S> class Fanout {
 public:
  explicit constexpr Fanout(S&... sinks) : sinks_{sinks...} {}

  constexpr void take(Event const& event) noexcept {
    each([&](auto& sink) {
      if constexpr (EventSink<std::remove_reference_t<decltype(sink)>>) sink.take(event);
    });
  }
  constexpr void take(Scalars const& scalars) {
    each([&](auto& sink) {
      if constexpr (ScalarSink<std::remove_reference_t<decltype(sink)>>) sink.take(scalars);
    });
  }
  void flush() {
    if constexpr ((observed<S> || ...)) {
      auto first = std::exception_ptr{};
      each([&](auto& sink) {
        try {
          sink.flush();
        } catch (...) {
          if (!first) first = std::current_exception();
        }
      });
      if (first) std::rethrow_exception(first);
    }
  }

 private:
  constexpr void each(auto&& call) {
    std::apply([&](auto&... sinks) { (call(sinks), ...); }, sinks_);
  }

  std::tuple<S&...> sinks_;
};

template <class... S> inline constexpr bool observed<Fanout<S...>> = (observed<S> || ...);

/// An event that lasts from its construction to the end of its scope.
///
///   auto const timed = Timed{sink, {.name = "forward", .rank = replica.id(), .step = step}};
///
/// keeps   refers to the sink; an event whose scope is left by an exception is recorded too
/// cost    two readings of the clock, and the take() of the sink; none with NullSink
template <EventSink S> class [[nodiscard]] Timed {
 public:
  Timed(S& sink, Event const& event) noexcept : sink_{sink}, event_{event} { event_.begin = now(); }
  Timed(Timed const&)            = delete;
  Timed& operator=(Timed const&) = delete;
  ~Timed() {
    event_.end = now();
    sink_.take(event_);
  }

  /// Adds bytes and messages sent during the event.
  void sent(std::size_t bytes, std::uint32_t messages = 1) noexcept {
    event_.bytes += bytes;
    event_.messages += messages;
  }

 private:
  static Event::Time now() noexcept { return std::chrono::steady_clock::now(); }

  S& sink_;
  Event event_;
};

template <EventSink S> requires(!observed<S>) class [[nodiscard]] Timed<S> {
 public:
  constexpr Timed(S&, Event const&) noexcept {}
  Timed(Timed const&)            = delete;
  Timed& operator=(Timed const&) = delete;
  ~Timed() {}  // avoids a warning of an unused variable

  constexpr void sent(std::size_t, std::uint32_t = 1) noexcept {}
};

}  // namespace chorale
