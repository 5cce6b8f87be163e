// SPDX-License-Identifier: Apache-2.0
//
// The same function twice: one tells a sink everything, one has never heard of sinks. null_sink_test.py compares them.
#include <chorale/observe/sink.hpp>

#include <array>
#include <cstddef>

using namespace chorale;

namespace {

template <class S> [[gnu::always_inline]] inline float train(float* x, std::size_t n, S& sink) {
  auto const step = Timed{sink, {.name = "step", .category = Category::step, .step = n}};
  auto sum        = 0.0F;
  for (std::size_t i = 0; i < n; ++i) {
    auto timed = Timed{sink, {.name = "row", .rank = 1, .step = i}};
    x[i] *= 0.5F;
    sum += x[i];
    timed.sent(sizeof x[i]);
    sink.take(Event{.name = "row done", .step = i});
  }
  auto const values = std::array{MetricValue{"sum", sum}};
  sink.take(Scalars{.step = n, .values = values});
  sink.flush();
  return sum;
}

}  // namespace

extern "C" float without_a_sink(float* x, std::size_t n) {
  auto sum = 0.0F;
  for (std::size_t i = 0; i < n; ++i) {
    x[i] *= 0.5F;
    sum += x[i];
  }
  return sum;
}

extern "C" float with_null_sink(float* x, std::size_t n) {
  auto sink = NullSink{};
  return train(x, n, sink);
}

extern "C" float with_fanout_of_null_sinks(float* x, std::size_t n) {
  auto first = NullSink{}, second = NullSink{};
  auto sink = Fanout{first, second};
  return train(x, n, sink);
}

// The counterpart: a sink that someone could look at is not without code.
struct Counter {
  int events = 0;
  void take(Event const&) noexcept { ++events; }
  void take(Scalars const&) {}
  void flush() const {}
};

extern "C" float with_a_sink(float* x, std::size_t n, Counter& sink) { return train(x, n, sink); }
