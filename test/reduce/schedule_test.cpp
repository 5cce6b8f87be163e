// SPDX-License-Identifier: Apache-2.0
// The schedules are proved while this file is compiled; and the checker is shown schedules that are wrong.
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule_proof.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/reduce/tree.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

namespace schedule_test {

using namespace chorale;

namespace {

template <Schedule S> constexpr bool proved() {
  return Proof<S, check_up_to<S>(16)>::checked && Proof<S, check<S>(31)>::checked && Proof<S, check<S>(32)>::checked &&
         Proof<S, check<S>(33)>::checked && Proof<S, check<S>(64)>::checked;
}
static_assert(proved<RingAllReduce>());
static_assert(proved<ReduceToOne>());
static_assert(proved<TreeAllReduce>());
static_assert(proved<DoubleTreeAllReduce>());
static_assert(proved<HalvingDoublingAllReduce>());
static_assert(proved<RecursiveDoublingAllReduce>());
static_assert(proved<PairwiseAllReduce>());

/// S with one message changed, or one step left out. Not a constant: the changes are tried one after the other.
template <class S> struct Mutant {
  enum Change { not_sent, not_received, other_peer, other_source, other_chunk, kept, combined, no_step, changes };

  static constexpr Collective collective = S::collective;
  static int chunks(int ranks) { return S::chunks(ranks); }
  static int widest(int ranks) { return S::widest(ranks); }
  static int steps(int ranks) { return S::steps(ranks); }

  static Step step(Rank rank, int ranks, int s) {
    auto step = S::step(rank, ranks, s);
    if (s != at_step || (rank != at_rank && change != no_step)) return step;
    auto const original = step;
    switch (change) {
      case not_sent: step.to = nobody; break;
      case not_received: step.from = nobody; break;
      case other_peer: step.to = step.to == nobody ? nobody : (step.to + 1) % ranks; break;
      case other_source: step.from = step.from == nobody ? nobody : (step.from + 1) % ranks; break;
      case other_chunk:
        if (step.to != nobody) step.send = {step.send.begin + 1, step.send.end + 1};
        break;
      case kept: step.fold = step.from == nobody ? step.fold : Fold::keep; break;
      case combined: step.fold = step.from == nobody || step.fold != Fold::keep ? step.fold : Fold::mine_first; break;
      default: step = {};
    }
    changed = changed || step.to != original.to || step.from != original.from || step.send != original.send ||
              step.fold != original.fold;
    return step;
  }

  static inline Change change = not_sent;
  static inline Rank at_rank  = 0;
  static inline int at_step   = 0;
  static inline bool changed  = false;
};

using Schedules = std::tuple<RingAllReduce, ReduceToOne, TreeAllReduce, DoubleTreeAllReduce, HalvingDoublingAllReduce,
                             RecursiveDoublingAllReduce, PairwiseAllReduce>;

// One schedule for each flaw: two ranks, and what they do in steps 0 and 1.
template <Flaw flaw> struct Wrong : ScheduledAllReduce<Wrong<flaw>> {
  static constexpr int chunks(int) { return 2; }
  static constexpr int widest(int) { return flaw == Flaw::too_wide ? 1 : 2; }
  static constexpr int steps(int ranks) { return ranks == 2 && flaw != Flaw::incomplete ? 2 : 0; }
  static constexpr Step step(Rank rank, int, int s) {
    constexpr auto all = Chunks{0, 2};
    constexpr auto one = Chunks{0, 1};
    switch (flaw) {
      case Flaw::no_such: return {.to = 2, .send = all};
      case Flaw::unmatched: return rank == 0 ? Step{.to = 1, .send = all} : Step{};
      case Flaw::other_chunks: return rank == 0 ? Step{.to = 1, .send = all} : Step{.from = 0, .receive = one};
      case Flaw::torn: return {.to = 1 - rank, .send = all, .from = 1 - rank, .receive = all};
      case Flaw::lost: return rank == 0 ? Step{.to = 1, .send = all} : Step{.from = 0, .receive = all};
      case Flaw::twice: break;  // the sum is exchanged and added again
      default: break;
    }
    if (s == 1 && flaw != Flaw::twice) return {};
    return {.to = 1 - rank, .send = all, .from = 1 - rank, .receive = all, .fold = Fold::mine_first};
  }
};

/// Rank 0 hands down what it does not have.
struct Nothing {
  static constexpr auto collective = Collective::all_gather;
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int, int) {
    if (rank > 1) return {};
    return rank == 0 ? Step{.to = 1, .send = {1, 2}} : Step{.from = 0, .receive = {1, 2}};
  }
};

static_assert(check<Wrong<Flaw::none>>(2) == FirstFlaw{Flaw::none, 2});
static_assert(check<Wrong<Flaw::no_such>>(2) == FirstFlaw{Flaw::no_such, 2, 0, 0, 0});
static_assert(check<Wrong<Flaw::unmatched>>(2) == FirstFlaw{Flaw::unmatched, 2, 0, 0, 0});
static_assert(check<Wrong<Flaw::other_chunks>>(2) == FirstFlaw{Flaw::other_chunks, 2, 0, 0, 0});
static_assert(check<Wrong<Flaw::too_wide>>(2) == FirstFlaw{Flaw::too_wide, 2, 0, 0, 0});
static_assert(check<Wrong<Flaw::torn>>(2) == FirstFlaw{Flaw::torn, 2, 0, 0, 0});
static_assert(check<Nothing>(2) == FirstFlaw{Flaw::nothing, 2, 1, 0, 1});
static_assert(check<Wrong<Flaw::twice>>(2) == FirstFlaw{Flaw::twice, 2, 0, 1, 0});
static_assert(check<Wrong<Flaw::lost>>(2) == FirstFlaw{Flaw::lost, 2, 1, 0, 0});
static_assert(check<Wrong<Flaw::incomplete>>(2) == FirstFlaw{Flaw::incomplete, 2, 0, 0, 0});

}  // namespace

TEMPLATE_LIST_TEST_CASE("a schedule with one message changed is no schedule any more", "[reduce][schedule]",
                        Schedules) {
  using M     = Mutant<TestType>;
  auto missed = 0, tried = 0;
  for (int const ranks : {2, 3, 4, 7, 8}) {
    for (M::at_rank = 0; M::at_rank < ranks; ++M::at_rank) {
      for (M::at_step = 0; M::at_step < TestType::steps(ranks); ++M::at_step) {
        for (int change = 0; change < M::changes; ++change) {
          M::change        = static_cast<typename M::Change>(change);
          M::changed       = false;
          auto const found = check<M>(ranks);
          if (!M::changed) continue;  // nothing there to change
          ++tried;
          missed += found.flaw == Flaw::none;
        }
      }
    }
  }
  CHECK(missed == 0);
  CHECK(tried > 100);
}

TEST_CASE("a proof at run time is that of the compiler", "[reduce][schedule]") {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    CHECK(check<DoubleTreeAllReduce>(ranks) == FirstFlaw{Flaw::none, ranks});
    CHECK(check<HalvingDoublingAllReduce>(ranks) == FirstFlaw{Flaw::none, ranks});
    CHECK(check<RecursiveDoublingAllReduce>(ranks) == FirstFlaw{Flaw::none, ranks});
  }
}

TEST_CASE("lanes and chunks cover x once, in messages that are not too large", "[reduce][schedule]") {
  auto const n      = GENERATE(as<std::size_t>{}, 0, 1, 7, 65'536, 65'537, 1'000'003);
  auto const chunks = GENERATE(1, 2, 3, 8, 16);
  auto const widest = GENERATE(1, 2);
  if (widest > chunks) return;
  auto const cut = Cut{n, sizeof(float), chunks, widest};
  auto times     = std::vector<char>(n);
  for (int lane = 0; lane < cut.lanes(); ++lane) {
    for (int c = 0; c < chunks; c += widest) {
      auto const part = cut.range(lane, {c, std::min(c + widest, chunks)});
      CHECK(part.size() <= cut.largest());
      CHECK(part.size() * sizeof(float) <= largest_message + 4 * sizeof(float));
      for (auto i = part.begin; i < part.end; ++i) ++times[i];
    }
  }
  CHECK(std::all_of(times.begin(), times.end(), [](char count) { return count == 1; }));
}

}  // namespace schedule_test
