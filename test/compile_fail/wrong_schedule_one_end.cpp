// wrong_schedule_one_end.cpp   expect: chorale: in this schedule a message has only one end
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

/// Rank 0 sends to all others in step 0, but a rank sends one message in a step: who waits for the rest?
struct Shout : ScheduledAllReduce<Shout> {
  static constexpr Collective collective = Collective::broadcast;
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks > 1 ? 1 : 0; }
  static constexpr Step step(Rank rank, int, int) {
    return rank == 0 ? Step{.to = 1, .send = {0, 1}} : Step{.from = 0, .receive = {0, 1}};
  }
};

auto operation = ScheduleExecution<Shout, LocalEndpoint, float>{};
