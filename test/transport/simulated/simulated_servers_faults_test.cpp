// SPDX-License-Identifier: Apache-2.0
// Faults from a seed: a parameter server ends right, or with errors that name the culprit, before the deadline.
#include "test/support/slow.hpp"
#include "test/transport/simulated/simulated_servers.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

// Worker w in step i pushes a single 1, at element w * steps + i of each server, and a rate of 1 makes of it
// -1/k in a round of k: so values say what was applied, with whom, and how often.

std::size_t place(Job const& job, int server, int worker, int step) {
  auto const first = plan::header + static_cast<std::size_t>(server) * job.each;
  return first + static_cast<std::size_t>(worker * job.steps + step);
}

/// With how many others a push was applied; 0: it was not, -1: no history explains this value.
int round_of(float value, int workers) {
  if (value == 0) return 0;
  for (int k = 1; k <= workers; ++k)
    if (value == -(1.0F / static_cast<float>(k))) return k;
  return -1;
}

/// Whether `me` may say that it lost `lost`, after what has happened.
bool is_culprit(Rank me, Rank lost, SimulatedRun const& run, SimulatedFaults const& faults) {
  return std::ranges::any_of(run.injected, [&](SimulatedEvent const& event) {
    switch (event.what) {
      case SimulatedFault::kill:
      case SimulatedFault::restart:
      case SimulatedFault::freeze: return lost == event.rank || me == event.rank;
      case SimulatedFault::drop:
      case SimulatedFault::cut:
      case SimulatedFault::corrupt:
        return (lost == event.rank && me == event.peer) || (lost == event.peer && me == event.rank);
      case SimulatedFault::partition: return faults.part_of_rank(lost, event) != faults.part_of_rank(me, event);
      default: return false;  // what is late is not lost
    }
  });
}

struct Tally {
  int flaws = 0, whole = 0, missed = 0, failed = 0;  // missed: servers went on without a worker
  std::uint64_t first = 0;                           // seed of the first flaw
  std::string flaw;
  std::map<SimulatedFault, int> faults;
};

using Dropped = std::vector<std::vector<int>>;  // [worker][step], by how many servers

constexpr int not_tried = -1, unknown = 100;

template <class C>
std::string flaw_of(Job const& job, C, Outcome const& outcome, Dropped const& dropped,
                    SimulatedTransport const& transport) {
  auto const late =
      VirtualTime{transport.timeout} + transport.faults.pause * static_cast<std::int64_t>(outcome.run.injected.size());
  for (Rank rank = 0; rank < job.workers + job.servers; ++rank) {
    auto const& end = outcome.run.ranks[static_cast<std::size_t>(rank)];
    auto const who  = "rank " + std::to_string(rank);
    if (end.at > late) return who + " ended late";
    if (end.error == nullptr || end.was_killed) continue;
    if (end.lost < 0) return who + " threw something else: " + end.message;
    if (!is_culprit(rank, end.lost, outcome.run, transport.faults)) return who + " blames another: " + end.message;
  }
  auto missing = std::map<std::pair<int, int>, int>{};
  for (int server = 0; server < job.servers; ++server) {
    auto const& ledger = outcome.ledgers[static_cast<std::size_t>(server)];
    if (!ledger) continue;
    auto applied = std::uint64_t{0};
    auto updates = 0.0;
    for (int step = 0; step < job.steps; ++step) {
      auto together = std::map<int, int>{};  // pushes of this step, by their round's size
      for (int worker = 0; worker < job.workers; ++worker) {
        auto const k     = round_of(outcome.values[place(job, server, worker, step)], job.workers);
        auto const drops = dropped[static_cast<std::size_t>(worker)][static_cast<std::size_t>(step)];
        auto const what  = "push " + std::to_string(step) + " of worker " + std::to_string(worker) + " at server " +
                          std::to_string(server);
        if (k < 0) return what + " was applied wrongly, or more than once";
        if (k > 0 && drops == not_tried) return what + " was applied, and never made";
        if (!C::rounds && k > 1) return what + " was applied with others";
        if (k == 0) ++missing[{worker, step}];
        if (k == 0) continue;
        ++applied;
        updates += 1.0 / k;
        ++together[k];
      }
      if (C::rounds && C::spares == 0 && !together.empty() &&
          (together.size() > 1 || together.begin()->first != together.begin()->second))
        return "step " + std::to_string(step) + " of server " + std::to_string(server) + " is not one round";
    }
    if (applied != ledger->applied || std::abs(updates - static_cast<double>(ledger->updates)) > 1e-3)
      return "server " + std::to_string(server) + " counts " + std::to_string(ledger->applied) + " pushes, and has " +
             std::to_string(applied);
  }
  for (auto const& [push, servers] : missing)
    if (auto const drops = dropped[static_cast<std::size_t>(push.first)][static_cast<std::size_t>(push.second)];
        drops != not_tried && servers > drops)
      return "push " + std::to_string(push.second) + " of worker " + std::to_string(push.first) +
             " was answered, and is missing";
  return "";
}

template <class C> void try_seed(std::uint64_t seed, Judgement (*judge)(Arrival const&), Tally& tally) {
  auto const random = Random{seed, 99};
  auto job          = Job{2 + static_cast<int>(random.below(0, 4)), 1 + static_cast<int>(random.below(1, 3)), 4, 0};
  job.each          = static_cast<std::size_t>(job.workers * job.steps);
  auto transport =
      SimulatedTransport{.faults = SimulatedFaults::all(seed, random.uniform(2, 0.0005F, 0.008F)), .judge = judge};
  transport.faults.most = 1 + static_cast<int>(random.below(3, 4));
  if (random.below(4, 4) == 0) transport.model.noise = 0.5;
  auto dropped       = Dropped(static_cast<std::size_t>(job.workers), std::vector<int>(4, not_tried));
  auto gradients     = std::vector<Flat>(static_cast<std::size_t>(job.workers), job.flat());
  auto wrong         = std::string{};
  auto const outcome = serve_job(
      job, C{}, optim::SGD{.learning_rate = 1}, job.flat(), transport,
      [&](auto& at, auto& client, Flat& values, int step) {
        auto const me = static_cast<std::size_t>(at.rank());
        auto& mine    = gradients[me];
        std::ranges::fill(mine, 0.0F);
        for (int server = 0; server < job.servers; ++server) mine[place(job, server, at.rank(), step)] = 1;
        StepHeader{mine}.rows() = 1;
        at.work(100us * static_cast<int>(random.below(1'000 + 100 * me + static_cast<std::uint64_t>(step), 10)));
        auto& drops = dropped[me][static_cast<std::size_t>(step)];
        drops       = unknown;
        drops       = client.push_and_pull({mine, {}, {}}, {values, {}}, 0);
        for (auto const value : body_of(values))
          if (round_of(value, job.workers) < 0) wrong = "rank " + std::to_string(at.rank()) + " pulled wrong values";
        for (int server = 0; C::staleness == 0 && drops == 0 && server < job.servers; ++server)
          if (values[place(job, server, at.rank(), step)] == 0)
            wrong = "rank " + std::to_string(at.rank()) + " pulled values without its own push";
      });
  auto const flaw = wrong.empty() ? flaw_of(job, C{}, outcome, dropped, transport) : wrong;
  for (auto const& event : outcome.run.injected) ++tally.faults[event.what];
  auto const all_served = std::ranges::all_of(outcome.ledgers, [](auto const& ledger) { return ledger.has_value(); });
  auto const errors     = std::ranges::count_if(outcome.run.ranks, [](auto const& end) { return end.lost >= 0; });
  ++(errors == 0 ? tally.whole : all_served && errors < job.workers ? tally.missed : tally.failed);
  if (flaw.empty()) return;
  if (tally.flaws++ == 0) {
    tally.first = seed;
    tally.flaw  = flaw;
  }
}

Tally try_seeds(std::uint64_t seeds, Judgement (*judge)(Arrival const&) = in_order_once) {
  constexpr auto tries = std::array{&try_seed<Asynchronous>, &try_seed<Synchronous>, &try_seed<BoundedStaleness<1>>,
                                    &try_seed<BackupWorkers<1>>};
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

void check_server_seeds(std::uint64_t seeds) {
  auto const tally = try_seeds(seeds);
  INFO("seed " << tally.first << ": " << tally.flaw);
  CHECK(tally.flaws == 0);
  CHECK(tally.whole > 2'000);   // else nothing was survived
  CHECK(tally.missed > 1'000);  // else no server went on without a worker
  CHECK(tally.failed > 1'000);  // else no server was lost
  for (std::size_t i = 0; i < simulated_faults; ++i) CHECK(tally.faults.at(static_cast<SimulatedFault>(i)) > 300);
}

}  // namespace

TEST_CASE("every seed over a parameter server ends right, or names the culprit before the deadline",
          "[transport][simulated][ps]") {
  check_server_seeds(10'000);
}

TEST_CASE("every one of 100,000 seeds over a parameter server ends right, or names the culprit",
          "[transport][simulated][ps][slow]") {
  if (slow_or_skip("every one of 100,000 seeds over a parameter server ends right, or names the culprit"))
    check_server_seeds(100'000);
}

TEST_CASE("a rule of delivery that is broken on purpose is found over a parameter server",
          "[transport][simulated][ps]") {
  CHECK(try_seeds(500, takes_twice).flaws > 0);
  CHECK(try_seeds(500, takes_out_of_order).flaws > 0);
  CHECK(try_seeds(500, takes_anything).flaws > 0);
  CHECK(try_seeds(500, holds_for_ever).flaws > 0);
}
