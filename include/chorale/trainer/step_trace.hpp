// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/tensor/variable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace chorale::detail {

/// The time now if sink S is observed, else a default value.
template <class S> Event::Time time_for() {
  if constexpr (observed<S>) return std::chrono::steady_clock::now();
  else return {};
}

/// Reports the parts of one step of a rank to a sink; each begins where the last one ended. Then the step.
template <class S> class StepTrace {
 public:
  StepTrace(S& sink, Rank rank, std::uint64_t step, Event::Time begin)
      : sink_{sink}, event_{.name = "step", .category = Category::step, .rank = rank, .step = step, .begin = begin},
        last_{begin} {}
  StepTrace(StepTrace const&)            = delete;
  StepTrace& operator=(StepTrace const&) = delete;
  ~StepTrace() {
    event_.end = std::chrono::steady_clock::now();
    sink_.take(event_);
  }

  void end(EventName name, Category category) { end(name, category, std::chrono::steady_clock::now()); }
  void end(EventName name, Category category, Event::Time now, std::size_t bytes = 0, std::uint32_t messages = 0) {
    auto part     = event_;
    part.bytes    = bytes;
    part.messages = messages;
    part.name     = name;
    part.category = category;
    part.begin    = last_;
    part.end = last_ = now;
    sink_.take(part);
  }

 private:
  S& sink_;
  Event event_;
  Event::Time last_;
};

template <class S> requires(!observed<S>) class StepTrace<S> {
 public:
  StepTrace(S&, Rank, std::uint64_t, Event::Time) {}
  void end(EventName, Category) {}
  void end(EventName, Category, Event::Time) {}
};

template <class R> struct Apart {
  explicit Apart(R&) {}
};
template <class R> requires requires(R& replica) { replica.apart; } struct Apart<R> {
  explicit Apart(R& replica) : apart{replica.apart} {}
  decltype(R::apart)& apart;
};

/// A replica whose operations are reported to a step trace. A strategy's update() gets it if the sink is observed.
template <class R, class S> class TracedReplica : public Apart<R> {
 public:
  /// To be made when the step begins, because gradients are sent before update() is called.
  TracedReplica(R& replica, StepTrace<S>& parts) : Apart<R>{replica}, replica_{replica}, parts_{parts} {
    if constexpr (counts) sent_ = replica.sent();
  }

  Rank id() const { return replica_.id(); }
  int num_replicas() const { return replica_.num_replicas(); }

  void all_reduce(Gradients& gradients) {
    told("all-reduce", [&] { replica_.all_reduce(gradients); });
  }
  void reduce_scatter(Gradients& gradients) {
    told("reduce-scatter", [&] { replica_.reduce_scatter(gradients); });
  }
  void add_up(auto&&... with) {
    told("check", [&] { replica_.add_up(with...); });
  }
  double squared_norm(auto&&... with) {
    auto norm = 0.0;
    told("norm", [&] { norm = replica_.squared_norm(with...); });
    return norm;
  }
  void gather_variables(auto&&... with) {
    told("all-gather", [&] { replica_.gather_variables(with...); });
  }
  void average(auto&&... with) {
    told("average", [&] { replica_.average(with...); });
  }
  void exchange(auto&&... with) {
    told("exchange", [&] { replica_.exchange(with...); });
  }
  void push_and_pull(auto&&... with) {
    told("push and pull", [&] { replica_.push_and_pull(with...); });
  }
  void pull(auto&&... with) {
    told("pull", [&] { replica_.pull(with...); });
  }
  void barrier() {
    told("barrier", [&] { replica_.barrier(); });
  }

 private:
  void told(EventName name, auto&& operation) {
    parts_.end("update", Category::compute);
    operation();
    if constexpr (counts) {
      auto const now = replica_.sent();
      parts_.end(name, Category::communication, std::chrono::steady_clock::now(), now.bytes - sent_.bytes,
                 static_cast<std::uint32_t>(now.messages - sent_.messages));
      sent_ = now;
    } else {
      parts_.end(name, Category::communication);
    }
  }

  static constexpr bool counts = requires(R const& replica) { replica.sent(); };
  struct Nothing {};
  template <class Of> static auto sent_by(Of const& replica) {
    if constexpr (counts) return replica.sent();
    else return Nothing{};
  }

  R& replica_;
  StepTrace<S>& parts_;
  [[no_unique_address]] decltype(sent_by(std::declval<R const&>())) sent_{};
};

/// The replica for a strategy's update(): a traced one if sink S is observed, else `replica` itself.
template <class R, class S> decltype(auto) watch(R& replica, [[maybe_unused]] StepTrace<S>& parts) {
  if constexpr (observed<S>) return TracedReplica<R, S>{replica, parts};
  else return (replica);
}

}  // namespace chorale::detail
