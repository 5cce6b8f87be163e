// right_schedule_both_ends.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

/// Rank 0 sends to one other in each step.
struct OneByOne : ScheduledAllReduce<OneByOne> {
  static constexpr Collective collective = Collective::broadcast;
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int, int s) {
    if (rank == 0) return {.to = s + 1, .send = {0, 1}};
    return rank == s + 1 ? Step{.from = 0, .receive = {0, 1}} : Step{};
  }
};

auto operation = ScheduleExecution<OneByOne, LocalEndpoint, float>{};
