// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/trainer/history.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale::detail {

/// The scalars of an epoch of model M, with their names(); then, if fit measures the machine, speed and
/// percent_of_floor.
template <class M> struct ShownScalars {
  std::array<MetricValue, 2 * plan::header + 3> values{};
  std::size_t size = 0, size_of_scores = 0;

  /// Names of the scalars that sinks receive: loss and metrics, these again with "val_", and the learning rate.
  static std::vector<std::string> const& names() {
    static auto const all = [] {
      auto made = std::vector<std::string>{};
      for (auto const* before : {"", "val_"}) {
        made.push_back(before + std::string{"loss"});
        for (auto const name : M::metric_names) made.push_back(before + std::string{name});
      }
      made.push_back("learning_rate");
      return made;
    }();
    return all;
  }

  /// Training scores of an epoch under way, whose learning rate is left at 0.
  explicit ShownScalars(Scores const& so_far) {
    add(so_far, 0);
    size_of_scores = size;
    values[size++] = {names().back(), 0};
  }
  explicit ShownScalars(Epoch const& epoch) {
    add(epoch.scores, 0);
    if (epoch.validation) add(*epoch.validation, names().size() / 2);
    size_of_scores = size;
    values[size++] = {names().back(), epoch.learning_rate};
    if (auto const percent = epoch.speed.percent_of_floor()) {
      values[size++] = {epoch.speed.counted.scalar, epoch.speed.per_second()};
      values[size++] = {"percent_of_floor", *percent};
    }
  }
  Span<MetricValue const> all() const { return Span<MetricValue const>{values}.first(size); }
  Span<MetricValue const> scores() const { return all().first(size_of_scores); }
  Span<MetricValue const> scores_and_rate() const { return all().first(size_of_scores + 1); }

 private:
  void add(Scores const& scores, std::size_t at) {
    values[size++] = {names()[at++], scores.loss()};
    for (std::size_t i = 0; i < scores.metrics(); ++i) values[size++] = {names()[at++], scores.metric(i)};
  }
};

}  // namespace chorale::detail
