// SPDX-License-Identifier: Apache-2.0
//
// Trains a network that is split over an axis on ranks that are threads, and puts the parts of its variables together.
#pragma once

#include "test/support/axis_threads.hpp"

#include <chorale/device/cpu.hpp>
#include <chorale/nn/engine/compiled.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test {

/// What some steps ended with: whole variables, the whole gradients of the first step, losses, and bytes sent by rank 0.
struct SplitRun {
  std::vector<std::vector<float>> variables, gradients;
  std::vector<float> losses, outputs;  // outputs: of all ranks, before the first step
  std::size_t sent = 0;                // in the first step
  bool alike       = true;             // variables that are not split, on all ranks
};

/// Trains on ranks of an axis for so many steps on one batch.
template <class Model, class Batch>
SplitRun train_split(Model const& model, char const* axis, int ranks, Batch const& batch, int steps) {
  auto group   = AxisThreads{axis, ranks};
  auto run     = SplitRun{};
  auto const n = Model::plan.variables.size();
  run.variables.resize(n), run.gradients.resize(n);
  auto parts = std::vector<SplitRun>(static_cast<std::size_t>(ranks), run);
  group.run([&](AxisGroup const& at) {
    auto& mine      = parts[static_cast<std::size_t>(at.rank)];
    auto copy       = model.instantiate(Cpu::logical(1)[0], Seed{5});
    auto const axes = AxisGroups{&at, 1};
    copy.join(axes);
    auto const outputs = copy.predict(batch);
    mine.outputs.assign(outputs.begin(), outputs.end());
    auto const before = group.sent(at.rank);
    for (int s = 0; s < steps; ++s) {
      mine.losses.push_back(copy.value_and_gradient(batch, 0, LooksAtEnd{}).value);
      auto gradients = copy.gradients();
      if (s == 0) {
        mine.sent = group.sent(at.rank) - before;
        for (std::size_t v = 0; v < n; ++v) mine.gradients[v].assign(gradients[v].begin(), gradients[v].end());
      }
      copy.optimizer.apply(copy.net.variables(), gradients);
    }
    for (std::size_t v = 0; v < n; ++v) {
      auto const value = copy.net.variables()[v].value;
      mine.variables[v].assign(value.begin(), value.end());
    }
  });
  run.losses = parts[0].losses;
  run.sent   = parts[0].sent;
  for (auto const& part : parts) {
    run.outputs.insert(run.outputs.end(), part.outputs.begin(), part.outputs.end());
    run.alike = run.alike && part.losses == parts[0].losses;
  }
  for (std::size_t v = 0; v < n; ++v) {
    auto const& spec = Model::plan.variables[v].spec;
    auto const join  = [&](auto member) {
      auto whole = std::vector<float>(spec.size() * static_cast<std::size_t>(spec.split.parts));
      for (int r = 0; r < spec.split.parts; ++r)
        each_run(spec, r, [&](Range at, std::size_t first) {
          auto const& part = (parts[static_cast<std::size_t>(r)].*member)[v];
          for (std::size_t i = 0; i < at.size(); ++i) whole[first + i] = part[at.begin + i];
        });
      for (auto const& part : parts)
        run.alike = run.alike && (spec.split.parts > 1 || (part.*member)[v] == (parts[0].*member)[v]);
      return whole;
    };
    run.variables[v] = join(&SplitRun::variables);
    run.gradients[v] = join(&SplitRun::gradients);
  }
  return run;
}

/// The largest difference between numbers, relative to the largest of them.
inline double difference(std::vector<float> const& a, std::vector<float> const& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  auto most = 1e-3, worst = 0.0;
  for (auto const x : a) most = std::max(most, std::abs(static_cast<double>(x)));
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst / most;
}
inline double difference(std::vector<std::vector<float>> const& a, std::vector<std::vector<float>> const& b) {
  auto worst = a.size() == b.size() ? 0.0 : HUGE_VAL;
  for (std::size_t v = 0; v < std::min(a.size(), b.size()); ++v) worst = std::max(worst, difference(a[v], b[v]));
  return worst;
}

}  // namespace chorale::test
