// SPDX-License-Identifier: Apache-2.0
//
// Variables that several sections of a pipeline use.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/graph/records.hpp>
#include <chorale/nn/pipeline/message_numbers.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/pipeline/stage_variables.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// A variable that several sections use, at least one of which this stage computes.
struct Tie {
  std::size_t variable;                                                    // in the plan of the stage
  int number;                                                              // in the network
  std::vector<int> sections;                                               // that use it, ascending
  int owner;                                                               // stage
  std::vector<int> others;                                                 // of other stages the last section each

  /// The next section that uses it after one that does, and the one before; -1: none.
  int after(int section) const {
    auto const next = std::ranges::upper_bound(sections, section);
    return next == sections.end() || std::ranges::count(sections, section) == 0 ? -1 : *next;
  }
  int before(int section) const {
    auto const here = std::ranges::find(sections, section);
    return here == sections.begin() || here == sections.end() ? -1 : *(here - 1);
  }
};

/// The variables of a stage that several sections use.
///
/// ends      of all sections, see cut_of
inline std::vector<Tie> ties_of(WholeNetwork const& whole, std::vector<int> const& ends,
                                StageVariables const& variables, pipelines::StageSchedule const& schedule) {
  auto ties        = std::vector<Tie>{};
  auto const stage = [&](int x) { return schedule.stage_of[at(x)]; };
  for (std::size_t i = 0; i < variables.of_network.size(); ++i) {
    auto users = users_of(whole, ends, variables.of_network[i]);
    if (users.size() < 2) continue;
    auto tie  = Tie{i, variables.of_network[i], std::move(users), 0, {}};
    tie.owner = stage(tie.sections.front());
    for (auto u = tie.sections.size(); u-- > 0;) {
      auto const x = tie.sections[u];
      if (stage(x) != tie.owner && std::ranges::none_of(tie.others, [&](int y) { return stage(y) == stage(x); }))
        tie.others.push_back(x);
    }
    ties.push_back(std::move(tie));
  }
  return ties;
}

/// Brings the sums of all stages that use a variable together at its owner, which adds them up.
///
/// received  memory for those of another stage
inline void add_ties(std::vector<Tie> const& ties, Gradients const& gradients, pipelines::StageSchedule const& schedule,
                     MessageNumbers const& numbers, pipelines::Messages& messages, std::vector<float>& received) {
  for (auto const& tie : ties) {
    auto const mine = gradients[tie.variable];
    for (auto const x : tie.others) {
      auto const s      = schedule.stage_of[at(x)];
      auto const number = numbers.tie(tie.number, x, 0);
      if (schedule.stage == s) {
        messages.wait(messages.send(tie.owner, number, std::as_bytes(mine)));
      } else if (schedule.stage == tie.owner) {
        received.resize(mine.size());
        messages.wait(messages.receive(s, number, std::as_writable_bytes(Span<float>{received})));
        for (std::size_t j = 0; j < mine.size(); ++j) mine[j] += received[j];
      }
    }
  }
}

/// Gives all stages that use a variable the sums of its owner.
inline void share_ties(std::vector<Tie> const& ties, Gradients const& gradients,
                       pipelines::StageSchedule const& schedule, MessageNumbers const& numbers,
                       pipelines::Messages& messages) {
  for (auto const& tie : ties) {
    auto const bytes = std::as_writable_bytes(gradients[tie.variable]);
    for (auto const x : tie.others) {
      auto const s      = schedule.stage_of[at(x)];
      auto const number = numbers.tie(tie.number, x, 0);
      if (schedule.stage == tie.owner) messages.send(s, number, bytes);
      else if (schedule.stage == s) messages.receive(tie.owner, number, bytes);
    }
  }
  messages.wait_all();
}

}  // namespace chorale::nn::graph
