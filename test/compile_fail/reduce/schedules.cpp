// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

/// What rank 0 and rank 1 do in each step; the others wait. A broadcast begins with nothing on rank 1.
template <class S, Collective what = Collective::all_reduce> struct Between : ScheduledAllReduce<S> {
  static constexpr Collective collective = what;
  static constexpr int chunks(int) { return 2; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks > 1 ? 2 : 0; }
  static constexpr Step step(Rank rank, int, int s) { return rank > 1 ? Step{} : S::of(rank, s); }
};

// expect: chorale: this schedule names a rank or a chunk that there is not
struct Wrong : Between<Wrong> {
  static constexpr Step of(Rank rank, int) {
    return {.to = 1 - rank, .send = {2, 3}, .from = 1 - rank, .receive = {2, 3}};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: chorale: in this schedule the two ends of a message differ about its chunks
struct Wrong : Between<Wrong> {
  static constexpr Step of(Rank rank, int) {
    return rank == 0 ? Step{.to = 1, .send = {0, 1}} : Step{.from = 0, .receive = {1, 2}, .fold = Fold::mine_first};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: chorale: in this schedule a message has more chunks than widest() says
struct Wrong : Between<Wrong> {
  static constexpr Step of(Rank rank, int) {
    return rank == 0 ? Step{.to = 1, .send = {0, 2}} : Step{.from = 0, .receive = {0, 2}, .fold = Fold::mine_first};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: chorale: this schedule sends and replaces the same chunks in one step
struct Wrong : Between<Wrong> {
  static constexpr Step of(Rank rank, int) {
    return {.to = 1 - rank, .send = {0, 1}, .from = 1 - rank, .receive = {0, 1}};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: chorale: in this schedule a rank sends chunks that it does not have yet
struct Wrong : Between<Wrong, Collective::broadcast> {
  static constexpr Step of(Rank rank, int) {
    return rank == 1 ? Step{.to = 0, .send = {0, 1}} : Step{.from = 1, .receive = {0, 1}};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: chorale: this schedule counts a rank twice
struct Wrong : Between<Wrong> {
  static constexpr Step of(Rank rank, int) {
    return rank == 0 ? Step{.to = 1, .send = {0, 1}} : Step{.from = 0, .receive = {0, 1}, .fold = Fold::mine_first};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: chorale: this schedule overwrites what a rank contributed
struct Wrong : Between<Wrong> {
  static constexpr Step of(Rank rank, int) {
    return rank == 0 ? Step{.to = 1, .send = {0, 1}} : Step{.from = 0, .receive = {0, 1}};
  }
};
auto operation = ScheduleExecution<Wrong, LocalEndpoint, float>{};

// expect: compiles
struct Right : ScheduledAllReduce<Right> {
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return 2 * (ranks - 1); }
  static constexpr Step step(Rank rank, int ranks, int s) {  // to rank 0 one by one, and back
    auto const other = s < ranks - 1 ? s + 1 : s - ranks + 2;
    if (s < ranks - 1) {
      if (rank == 0) return {.from = other, .receive = {0, 1}, .fold = Fold::mine_first};
      return rank == other ? Step{.to = 0, .send = {0, 1}} : Step{};
    }
    if (rank == 0) return {.to = other, .send = {0, 1}};
    return rank == other ? Step{.from = 0, .receive = {0, 1}} : Step{};
  }
};
auto operation = ScheduleExecution<Right, LocalEndpoint, float>{};
