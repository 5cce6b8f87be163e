// SPDX-License-Identifier: Apache-2.0
//
// Variables that several sections of a pipeline use.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/message_numbers.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/pipeline/stage_variables.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// A variable that several sections use, at least one of them on this stage.
struct Tie {
  std::size_t variable;       // in the plan of the stage
  int number;                 // in the network
  std::vector<int> sections;  // that use it, ascending
  int owner;                  // stage
  std::vector<int> others;    // of other stages the last section each

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

/// Elements of a tied variable's gradient in one message to its owner, which adds one part while the next one arrives:
/// both stay in a cache.
inline constexpr std::size_t tie_part = std::size_t{1} << 17;

/// Elements of another stage's gradient that add_ties() has in memory at once.
///
/// size    elements of the variable
inline std::size_t received_at_once(std::size_t size) { return std::min(size, 2 * tie_part); }

/// Brings the sums of all stages that use a variable together at its owner, which adds them up.
///
/// received  memory for a part of another stage's gradient: received_at_once() elements
inline void add_ties(std::vector<Tie> const& ties, Gradients const& gradients, pipelines::StageSchedule const& schedule,
                     MessageNumbers const& numbers, pipelines::Messages& messages, std::vector<float>& received) {
  for (auto const& tie : ties) {
    auto const mine  = gradients[tie.variable];
    auto const parts = (mine.size() + tie_part - 1) / tie_part;
    auto const part  = [&](std::size_t i) {
      return mine.subspan(i * tie_part, std::min(tie_part, mine.size() - i * tie_part));
    };
    auto under_way = std::array<std::size_t, 2>{};  // messages of the last two parts
    for (auto const x : tie.others) {
      auto const s      = schedule.stage_of[at(x)];
      auto const number = numbers.tie(tie.number, x, 0);
      if (schedule.stage == s) {
        for (std::size_t i = 0; i < parts; ++i) {
          if (i >= 2) messages.wait(under_way[i % 2]);
          under_way[i % 2] = messages.send(tie.owner, number, std::as_bytes(part(i)));
        }
        messages.wait_all();
      } else if (schedule.stage == tie.owner) {
        received.resize(received_at_once(mine.size()));
        auto const into = [&](std::size_t i) { return &received[i % 2 * tie_part]; };
        auto const post = [&](std::size_t i) {
          if (i < parts)
            under_way[i % 2] =
                messages.receive(s, number, std::as_writable_bytes(Span<float>{into(i), part(i).size()}));
        };
        post(0), post(1);
        for (std::size_t i = 0; i < parts; ++i, post(i + 1)) {
          messages.wait(under_way[i % 2]);
          auto const to          = part(i);
          auto const* const from = into(i);
          for (std::size_t j = 0; j < to.size(); ++j) to[j] += from[j];
        }
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
