// wrong_schedule.cpp   expect: chorale: this schedule ends before every chunk is complete
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

/// Around the ring once: sums are complete, but only on one rank each.
struct HalfARing : ScheduledAllReduce<HalfARing> {
  static constexpr Cost cost(int ranks, std::size_t bytes) { return RingAllReduce::cost(ranks, bytes); }
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int ranks, int s) { return RingAllReduce::step(rank, ranks, s); }
};

void reduce(LocalEndpoint& at, Span<float> x) { HalfARing{}.all_reduce(at, x, Op::sum); }
