// SPDX-License-Identifier: Apache-2.0
// Faults from a seed: an all-reduce ends right, or with an error that names the culprit, before its deadline.
#include "test/support/cases.hpp"
#include "test/support/slow.hpp"

#include <chorale/transport/simulated.hpp>
#include <chorale/transport/simulated/explore_orders.hpp>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

struct Outcome {
  SimulatedRun run;
  std::vector<std::vector<float>> x;  // [rank]
  std::vector<int> rounds;            // [rank]: all-reduces that ended well
};

constexpr int rounds = 2;

/// Some all-reduces of values_of(), all with one tag.
template <class R> Outcome all_reduces(int ranks, std::size_t n, SimulatedTransport const& transport) {
  auto outcome = Outcome{};
  outcome.x.resize(static_cast<std::size_t>(ranks));
  outcome.rounds.assign(static_cast<std::size_t>(ranks), 0);
  outcome.run = simulate(
      ranks,
      [&](SimulatedEndpoint& at) {
        auto const me = static_cast<std::size_t>(at.rank());
        for (int round = 0; round < rounds; ++round) {
          outcome.x[me] = values_of(at.rank(), n);
          R{}.all_reduce(at, Span<float>{outcome.x[me]}, Op::sum);
          ++outcome.rounds[me];
        }
      },
      transport);
  return outcome;
}

SimulatedTransport with(SimulatedFault what, Rank rank, std::uint64_t message, SimulatedFaults faults = {}) {
  faults.scheduled = {{what, rank, message}};
  return {.faults = std::move(faults)};
}

bool all_right(Outcome const& outcome, std::vector<float> const& expected) {
  return std::all_of(outcome.rounds.begin(), outcome.rounds.end(), [](int n) { return n == rounds; }) &&
         std::all_of(outcome.x.begin(), outcome.x.end(), [&](auto const& x) { return same_bits(x, expected); });
}

/// Whether `me` may say that it lost `lost`, after what has happened.
bool is_culprit(Rank me, Rank lost, SimulatedRun const& run, SimulatedFaults const& faults) {
  return std::any_of(run.injected.begin(), run.injected.end(), [&](SimulatedEvent const& event) {
    switch (event.what) {
      case SimulatedFault::kill:
      case SimulatedFault::restart:
      case SimulatedFault::freeze: return lost == event.rank;
      case SimulatedFault::drop:
      case SimulatedFault::cut:
      case SimulatedFault::corrupt: return lost == event.rank || lost == event.peer;
      case SimulatedFault::partition:
        return lost == me || faults.part_of_rank(lost, event) != faults.part_of_rank(me, event) ||
               faults.part_of(faults.pause, event.rank, event.message) <= faults.dead;  // healed: both sides are told
      default: return false;                                                            // what is late is not lost
    }
  });
}

/// What is wrong with an outcome; empty when nothing is.
std::string flaw_of(Outcome const& outcome, std::vector<float> const& expected, SimulatedTransport const& transport) {
  auto const deadline =
      VirtualTime{transport.timeout} + transport.faults.pause * static_cast<std::int64_t>(outcome.run.injected.size());
  for (std::size_t rank = 0; rank < outcome.x.size(); ++rank) {
    auto const& end = outcome.run.ranks[rank];
    auto const who  = "rank " + std::to_string(rank);
    if (end.at > deadline) return who + " ended late";
    if (outcome.rounds[rank] == rounds && !same_bits(outcome.x[rank], expected)) return who + " has a wrong sum";
    if (end.error == nullptr || end.was_killed) continue;
    if (end.lost < 0) return who + " threw something else: " + end.message;
    if (!is_culprit(static_cast<Rank>(rank), end.lost, outcome.run, transport.faults))
      return who + " blames another: " + end.message;
  }
  return "";
}

struct Tally {
  int flaws = 0, right = 0, lost = 0;
  std::uint64_t first = 0;  // seed of the first flaw
  std::string flaw;
  std::map<SimulatedFault, int> faults;
};

template <class R> void try_seed(std::uint64_t seed, Judgement (*judge)(Arrival const&), Tally& tally) {
  constexpr std::size_t n = 37;
  static auto expected    = std::map<int, std::vector<float>>{};
  auto const random       = Random{seed, 99};
  auto const ranks        = 2 + static_cast<int>(random.below(0, 6));
  auto transport =
      SimulatedTransport{.faults = SimulatedFaults::all(seed, random.uniform(1, 0.001F, 0.02F)), .judge = judge};
  transport.faults.most = 1 + static_cast<int>(random.below(2, 4));
  if (random.below(3, 4) == 0) transport.model.noise = 0.5;
  if (!expected.contains(ranks)) expected[ranks] = reference<R>(ranks, n, Op::sum);
  auto const outcome = all_reduces<R>(ranks, n, transport);
  auto const flaw    = flaw_of(outcome, expected[ranks], transport);
  for (auto const& event : outcome.run.injected) ++tally.faults[event.what];
  auto const right = all_right(outcome, expected[ranks]);
  tally.right += right ? 1 : 0;
  tally.lost += right ? 0 : 1;
  if (flaw.empty()) return;
  if (tally.flaws++ == 0) {
    tally.first = seed;
    tally.flaw  = flaw;
  }
}

template <class... R> Tally try_seeds(std::uint64_t seeds, Judgement (*judge)(Arrival const&) = in_order_once) {
  using Try            = void (*)(std::uint64_t, Judgement (*)(Arrival const&), Tally&);
  constexpr auto tries = std::array<Try, sizeof...(R)>{&try_seed<R>...};
  auto tally           = Tally{};
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) tries[seed % tries.size()](seed, judge, tally);
  return tally;
}

// Broken on purpose.

Judgement takes_twice(Arrival const& message) {
  return message.sequence < message.expected ? Judgement::deliver : in_order_once(message);
}
Judgement takes_out_of_order(Arrival const& message) {
  return message.sequence > message.expected ? Judgement::deliver : in_order_once(message);
}
Judgement takes_anything(Arrival const& message) { return in_order_once({message.sequence, message.expected, true}); }
Judgement holds_for_ever(Arrival const& message) {
  return message.sequence % 3 == 2 ? Judgement::hold : in_order_once(message);
}

/// Reuses memory that is still being sent.
struct HastyAllReduce {
  template <Endpoint E> void all_reduce(E& at, Span<float> x, Op) const {
    auto const P = at.size(), me = at.rank();
    auto mine = std::vector<float>(x.begin(), x.end()), theirs = mine;
    auto total                          = std::vector<std::vector<float>>(static_cast<std::size_t>(P));
    total[static_cast<std::size_t>(me)] = mine;
    for (int i = 1; i < P; ++i) {
      auto sent = at.send((me + 1) % P, Tag{}, std::as_bytes(Span<float>{mine}));
      at.recv((me + P - 1) % P, Tag{}, std::as_writable_bytes(Span<float>{theirs})).wait();
      mine = theirs;  // before sent.wait()
      sent.wait();
      total[static_cast<std::size_t>((me - i + P) % P)] = mine;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = total[0][i];
      for (std::size_t rank = 1; rank < total.size(); ++rank) x[i] = x[i] + total[rank][i];
    }
  }
};

void check_seeds(std::uint64_t seeds) {
  auto const tally = try_seeds<RingAllReduce, HalvingDoublingAllReduce, DoubleTreeAllReduce, ReduceToOne>(seeds);
  INFO("seed " << tally.first << ": " << tally.flaw);
  CHECK(tally.flaws == 0);
  CHECK(tally.right > 5'000);  // else nothing was survived
  CHECK(tally.lost > 5'000);   // else nothing was tried
  for (std::size_t i = 0; i < simulated_faults; ++i) CHECK(tally.faults.at(static_cast<SimulatedFault>(i)) > 500);
}

}  // namespace

TEST_CASE("what is dropped, late, twice or overtaken does not change a bit", "[transport][simulated]") {
  auto const what =
      GENERATE(SimulatedFault::drop, SimulatedFault::delay, SimulatedFault::duplicate, SimulatedFault::reorder);
  auto const expected = reference<RingAllReduce>(4, 37, Op::sum);
  for (std::uint64_t message = 0; message < 12; ++message) {
    auto const outcome = all_reduces<RingAllReduce>(4, 37, with(what, 1, message));
    INFO(name(what) << " of message " << message);
    CHECK(all_right(outcome, expected));
    CHECK(outcome.run.injected == std::vector{SimulatedEvent{what, 1, message, 2}});
    if (what == SimulatedFault::drop) CHECK(outcome.run.time >= VirtualTime{10ms});
  }
}

TEST_CASE("a corrupt message, a cut and a killed rank are told to all at once", "[transport][simulated]") {
  auto const [what, fault, culprit, text] =
      GENERATE(std::tuple{SimulatedFault::corrupt, Fault::frame_corrupt, 1, "the checksum of its message 3, 36 bytes"},
               std::tuple{SimulatedFault::cut, Fault::peer_lost, 2, "its connection to rank 1 was cut at message 3"},
               std::tuple{SimulatedFault::kill, Fault::peer_lost, 1, "its process ended at message 3"});
  auto const outcome = all_reduces<RingAllReduce>(4, 36, with(what, 1, 3));
  CHECK(outcome.run.time < VirtualTime{1ms});
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const& end = outcome.run.ranks[static_cast<std::size_t>(rank)];
    CHECK(end.lost == culprit);
    CHECK_THAT(end.message, Catch::Contains(text));
    CHECK(end.was_killed == (what == SimulatedFault::kill && rank == 1));
    try {
      std::rethrow_exception(end.error);
    } catch (PeerLost const& lost) {
      if (rank != culprit) CHECK(lost.fault() == fault);
      else if (what != SimulatedFault::kill) CHECK(lost.fault() == Fault::evicted);
    }
  }
}

TEST_CASE("a rank that freezes is late, or taken for lost, and a rank that restarts is told so",
          "[transport][simulated]") {
  auto seen = std::map<std::string, int>{};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    auto const frozen = all_reduces<RingAllReduce>(3, 9, with(SimulatedFault::freeze, 1, 2, {.seed = seed}));
    auto const& other = frozen.run.ranks[0];
    ++seen[other.error == nullptr ? "late" : "lost"];
    if (other.error == nullptr) {
      CHECK(all_right(frozen, reference<RingAllReduce>(3, 9, Op::sum)));
      CHECK(frozen.run.time < VirtualTime{5s + 1ms});
    } else {
      CHECK(other.lost == 1);
      CHECK(other.at >= VirtualTime{5s});
      CHECK(other.at < VirtualTime{5s + 1ms});
      CHECK_THAT(frozen.run.ranks[1].message, Catch::Contains("the others took it for lost"));
    }
  }
  CHECK(seen["late"] > 5);
  CHECK(seen["lost"] > 5);
  auto const restarted = all_reduces<RingAllReduce>(3, 9, with(SimulatedFault::restart, 1, 2));
  CHECK_THAT(restarted.run.ranks[1].message,
             Catch::Contains("rank 1 was given up by the other ranks") && Catch::Contains("it was started again"));
  CHECK_THAT(restarted.run.ranks[0].message, Catch::Contains("lost rank 1") && Catch::Contains("process ended"));
}

TEST_CASE("the two sides of a partition each miss the other one, or meet again", "[transport][simulated]") {
  auto seen = std::map<std::string, int>{};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    auto const transport = with(SimulatedFault::partition, 0, 2, {.seed = seed});
    auto const parted    = all_reduces<RingAllReduce>(6, 12, transport);
    ++seen[all_right(parted, reference<RingAllReduce>(6, 12, Op::sum)) ? "whole" : "parted"];
    CHECK(flaw_of(parted, reference<RingAllReduce>(6, 12, Op::sum), transport) == "");
  }
  CHECK(seen["whole"] > 2);
  CHECK(seen["parted"] > 10);
}

TEST_CASE("every seed ends right, or names the culprit before the deadline", "[transport][simulated]") {
  check_seeds(20'000);
}

TEST_CASE("every one of 100,000 seeds ends right, or names the culprit", "[transport][simulated][slow]") {
  if (slow_or_skip("every one of 100,000 seeds ends right, or names the culprit")) check_seeds(100'000);
}

TEST_CASE("a seed replays exactly", "[transport][simulated]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    auto const transport = SimulatedTransport{.model = {.noise = 0.3}, .faults = SimulatedFaults::all(seed, 0.01F)};
    auto const once      = all_reduces<DoubleTreeAllReduce>(5, 37, transport);
    auto const again     = all_reduces<DoubleTreeAllReduce>(5, 37, transport);
    CHECK(once.run.trace == again.run.trace);
    CHECK(once.run.injected == again.run.injected);
    for (std::size_t rank = 0; rank < 5; ++rank) {
      CHECK(once.run.ranks[rank].message == again.run.ranks[rank].message);
      CHECK(once.run.ranks[rank].at == again.run.ranks[rank].at);
      CHECK(same_bits(once.x[rank], again.x[rank]));
    }
  }
}

TEST_CASE("a rule of delivery that is broken on purpose is found", "[transport][simulated]") {
  CHECK(try_seeds<RingAllReduce, HalvingDoublingAllReduce>(2'000, takes_twice).flaws > 0);
  CHECK(try_seeds<RingAllReduce, HalvingDoublingAllReduce>(2'000, takes_out_of_order).flaws > 0);
  CHECK(try_seeds<RingAllReduce, HalvingDoublingAllReduce>(2'000, takes_anything).flaws > 0);
  CHECK(try_seeds<RingAllReduce, HalvingDoublingAllReduce>(2'000, holds_for_ever).flaws > 0);
}

TEST_CASE("an algorithm that reuses what it still sends is found", "[transport][simulated]") {
  auto const hasty = all_reduces<HastyAllReduce>(4, 37, {.model = {.noise = 1}});
  hasty.run.check();
  auto const expected = serial_reference(4, 37, Op::sum, [](std::size_t) { return 0; });
  CHECK_FALSE(all_right(hasty, expected));
}

TEST_CASE("chances of faults must make sense", "[transport][simulated]") {
  auto const with_faults = [](SimulatedFaults const& faults) {
    return SimulatedTransport{.faults = faults}.connect(Group::all_local(2));
  };
  CHECK_THROWS_WITH(with_faults(SimulatedFaults::all(1, 0.2F)), Catch::Contains("add up to 2.0"));
  CHECK_THROWS_AS(with_faults({.rates = {-0.1F}}), BadArgument);
  CHECK_THROWS_AS(with_faults({.tries = 0}), BadArgument);
}
