// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/trainer/history.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::detail {

/// A copy of a model with a metric that has a state: it has metric::States.
template <class Instance> concept KeepsStates = requires(Instance& copy) { copy.states(); };

/// Numbers that replicas add up together.
template <std::size_t n> struct Numbers {
  std::array<double, n> values{};

  Numbers& operator+=(Numbers const& other) {
    for (std::size_t i = 0; i < n; ++i) values[i] += other.values[i];
    return *this;
  }
};

/// The states of the metrics of all copies of a model in this process, from which scores get results and counts.
///
/// keeps   a view, which does nothing for models without such metrics. The chief's first copy has what all replicas
///         brought before a checkpoint
template <class M, class Instance> class MetricStates {
 public:
  /// counted   0 for a copy whose rows another one counts; empty: each copy has its own rows
  explicit MetricStates(PerReplica<Instance>& copies, Span<char const> counted = {})
      : copies_{copies}, counted_{counted} {}

  void forget([[maybe_unused]] metric::Over over) const {
    if constexpr (KeepsStates<Instance>)
      for (auto& copy : copies_) copy.states().clear(over);
  }
  void forget_epoch() const {
    forget(metric::Over::step);
    forget(metric::Over::epoch);
  }

  /// Sets results over the rows of this process in the epoch so far: nothing is sent, and nothing allocated.
  void score_here([[maybe_unused]] Scores& scores) const {
    if constexpr (KeepsStates<Instance>) {
      auto& sum = copies_[0].states();
      sum.clear(metric::Over::job);
      for (std::size_t i = 0; i < copies_.size(); ++i)
        if (counts(i)) sum.merge(metric::Over::job, copies_[i].states(), metric::Over::epoch);
      sum.each_result(metric::Over::job, [&](std::size_t i, double result, Span<double const>) {
        scores.set_result(before() + i, result);
      });
    }
  }

  /// Sets results and counts over the rows of all replicas. Every process calls it.
  void score_all([[maybe_unused]] auto& live, [[maybe_unused]] metric::Over over,
                 [[maybe_unused]] Scores& scores) const {
    if constexpr (KeepsStates<Instance>) {
      copies_[0].states().read(metric::Over::job, sum_of_all(live, over).data());
      auto counts = Scores::CountsOfMetrics(M::metric_names.size());
      copies_[0].states().each_result(metric::Over::job, [&](std::size_t i, double result, Span<double const> sums) {
        scores.set_result(before() + i, result);
        counts[before() + i].assign(sums.begin(), sums.end());
      });
      scores.set_counts(std::make_shared<Scores::CountsOfMetrics const>(std::move(counts)));
    }
  }

  /// The states of all metrics, one after another, added up over all replicas. Every process calls it.
  std::vector<double> sum_of_all([[maybe_unused]] auto& live, [[maybe_unused]] metric::Over over) const {
    auto all = std::vector<double>{};
    if constexpr (KeepsStates<Instance>) {
      constexpr auto n    = States<Instance>::size;
      constexpr auto each = std::min(n, std::size_t{256});
      auto mine           = std::vector<double>(copies_.size() * n);  // (copies, n)
      for (std::size_t i = 0; i < copies_.size(); ++i)
        if (counts(i)) copies_[i].states().write(over, mine.data() + i * n);
      for (std::size_t at = 0; at < n; at += each) {
        auto const size = std::min(each, n - at);
        auto parts      = PerReplica<Numbers<each>>(copies_.size());
        for (std::size_t i = 0; i < copies_.size(); ++i)
          std::copy_n(mine.data() + i * n + at, size, parts[i].values.begin());
        auto const sum = live.reduce(parts);
        all.insert(all.end(), sum.values.begin(), sum.values.begin() + size);
      }
    }
    return all;
  }

  /// Replaces the states of the epoch by a sum over all replicas, which goes to the chief's first one.
  void set_epoch([[maybe_unused]] Span<double const> sum, [[maybe_unused]] bool is_chief) const {
    forget_epoch();
    if constexpr (KeepsStates<Instance>)
      if (is_chief) copies_[0].states().read(metric::Over::epoch, sum.data());
  }

  /// Calls tell(name, numbers) for each metric with a state, in the order of sum_of_all().
  static void each([[maybe_unused]] auto&& tell) {
    if constexpr (KeepsStates<Instance>)
      for (std::size_t i = 0; i < States<Instance>::metrics; ++i)
        if (States<Instance>::sizes[i] != 0) tell(M::metric_names[before() + i], States<Instance>::sizes[i]);
  }

 private:
  template <class I> using States = std::remove_reference_t<decltype(std::declval<I&>().states())>;

  /// Number of names before the metrics' names: the losses of several outputs.
  static constexpr std::size_t before() { return M::metric_names.size() - States<Instance>::metrics; }

  bool counts(std::size_t i) const { return counted_.empty() || counted_[i] != 0; }

  PerReplica<Instance>& copies_;
  Span<char const> counted_;
};

}  // namespace chorale::detail
