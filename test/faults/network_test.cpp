// SPDX-License-Identifier: Apache-2.0
// Cables are cut between ranks that have network stacks of their own: rows T10, T11, T32 and T33 of
// docs/65-robustness.md. And what such ranks do at start.
#include "test/faults/told.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto timeouts =
    Timeouts{.heartbeat = 100ms, .warn_silent = 400ms, .dead = 800ms, .warn_stuck = 10s, .stuck = 30s, .join = 20s};

bool ip(std::string const& words) { return std::system(("ip " + words + " > /dev/null 2>&1").c_str()) == 0; }

/// Gives this process a network stack of its own, with a switch in it; false where that is not allowed.
bool has_switch() {
  static bool const made = (::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) &&
                           ip("link add switch type bridge") && ip("link set switch up");
  return made;
}

std::string port(Rank rank) { return "port" + std::to_string(rank); }

/// A cable for each rank, one end of which is in the switch.
void plug_in(int ranks) {
  for (Rank rank = 0; rank < ranks; ++rank) {
    ip("link del " + port(rank));  // of the test before
    REQUIRE(ip("link add " + port(rank) + " type veth peer name rank" + std::to_string(rank)));
    REQUIRE(ip("link set " + port(rank) + " master switch up"));
  }
}

/// Takes the other end of the rank's cable into a network stack of this process alone.
void move_out(Rank rank) {
  auto const name = "rank" + std::to_string(rank);
  auto const home = std::to_string(::getppid());
  auto const me   = std::to_string(::getpid());
  if (::unshare(CLONE_NEWNET) != 0 ||
      std::system(("nsenter -t " + home + " -n ip link set " + name + " netns " + me).c_str()) != 0 ||
      !ip("addr add 10.9.0." + std::to_string(rank + 1) + "/24 dev " + name) || !ip("link set lo up") ||
      !ip("link set " + name + " up"))
    throw Error{"rank " + std::to_string(rank) + " has no network"};
}

TcpTransport transport_of(int ranks, Timeouts const& within = timeouts) {
  auto transport = TcpTransport{.timeouts = within};
  for (Rank rank = 0; rank < ranks; ++rank)
    transport.addresses.push_back("10.9.0." + std::to_string(rank + 1) + ":2222");
  transport.secret = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, at least"}})};
  transport.log    = [](std::string const&) {};
  return transport;
}

/// Ranks that train without an end. Says "ready" after step 3.
Processes trainees(int ranks) {
  plug_in(ranks);
  return Processes{ranks, [ranks](Rank rank, Voice voice) {
                     move_out(rank);
                     auto at      = connected(transport_of(ranks), ranks, rank);
                     auto weights = Weights{ranks, 10'007};
                     tell_end(voice, weights, [&] {
                       for (std::uint64_t step = 0;; ++step) {
                         begin_step(at, step);
                         if (step == 3) voice.say("ready");
                         RingAllReduce{}.all_reduce(at, weights.gradient(rank), Op::sum);
                         weights.apply();
                       }
                     });
                   }};
}

/// Rank 1, whose cable was cut, takes the others for gone.
void check_alone(Told const& told, double since) {
  INFO("rank 1 after " << told.at - since << " s: " << told.line());
  CHECK(told.is(Fault::peer_stalled));
  CHECK(told.culprit != 1);
  CHECK(told.at - since >= 0.8);
  CHECK(told.at - since <= 1.8);
  CHECK(told.whole);
}

/// All of a group of n say "ready"; then the end of rank 1's cable in the switch is changed. Returns when.
double change_port_of_rank_1(Processes& processes, int ranks, std::string const& words) {
  for (Rank rank = 0; rank < ranks; ++rank) REQUIRE(processes.line(rank) == "ready");
  auto const since = seconds_now();
  REQUIRE(ip("link set " + port(1) + words));
  return since;
}

/// Ranks that train for so long, while `trouble` happens after all have said "ready": it costs no update a bit.
template <class Trouble> void unharmed(int ranks, double seconds, std::uint64_t least_updates, Trouble trouble) {
  plug_in(ranks);
  auto processes = Processes{ranks, [=](Rank rank, Voice voice) {
                               move_out(rank);
                               auto within = timeouts;
                               within.dead = 5s;
                               auto at     = connected(transport_of(ranks, within), ranks, rank);
                               voice.say("ready");
                               auto const until = seconds_now() + seconds;
                               auto weights     = Weights{ranks, 10'007};
                               auto over        = std::vector<float>(1);
                               tell_end(voice, weights, [&] {
                                 for (std::uint64_t step = 0; over[0] == 0; ++step) {
                                   begin_step(at, step);
                                   RingAllReduce{}.all_reduce(at, weights.gradient(rank), Op::sum);
                                   weights.apply();
                                   over[0] = seconds_now() > until ? 1.0F : 0.0F;
                                   RingAllReduce{}.all_reduce(at, Span<float>{over}, Op::max);
                                 }
                               });
                             }};
  for (Rank rank = 0; rank < ranks; ++rank) REQUIRE(processes.line(rank) == "ready");
  trouble();
  auto all = std::vector<Told>{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    all.push_back(Told::parse(processes.line(rank)));
    INFO("rank " << rank << ": " << all.back().line());
    CHECK(all.back().fault == -1);
    CHECK(all.back().updates == all[0].updates);
    CHECK(all.back().updates > least_updates);
    CHECK(all.back().whole);
  }
}

constexpr auto not_allowed = "this process may not make network namespaces";

/// Nothing reaches rank 1 any more, but what it sends arrives.
void deafen_rank_1(int ranks) {
  auto processes = trainees(ranks);
  auto const since =
      change_port_of_rank_1(processes, ranks, " type bridge_slave learning off flood off bcast_flood off fdb_flush");
  auto all = std::vector<Told>{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == 1) continue;
    all.push_back(Told::parse(processes.line(rank)));
    auto const& told = all.back();
    INFO("rank " << rank << " after " << told.at - since << " s: " << told.line());
    auto const named_itself = told.is(Fault::evicted) && told.culprit == rank;
    CHECK((told.is(Fault::peer_stalled) || told.is(Fault::peer_lost) || named_itself));
    CHECK(told.culprit == all[0].culprit);  // rank 1, or whom rank 1 blamed
    CHECK(told.sequence == all[0].sequence);
    CHECK(told.step == all[0].step);
    CHECK(told.at - since >= 0.8);
    CHECK(told.at - since <= 1.8);
    CHECK(told.whole);
  }
  check_alone(Told::parse(processes.line(1)), since);
}

}  // namespace

TEST_CASE("T10: when nothing passes a cable any more, both sides know in time, and the others name who is missing",
          "[faults][network]") {
  if (!has_switch()) return skip("T10, nothing passes", not_allowed);
  auto processes   = trainees(4);
  auto const since = change_port_of_rank_1(processes, 4, " nomaster");
  check_survivors(processes, 4, 1, Fault::peer_stalled, since, 0.8, 1.8);
  check_alone(Told::parse(processes.line(1)), since);
}

TEST_CASE("T10: when a cable is pulled out, both sides know in time", "[faults][network]") {
  if (!has_switch()) return skip("T10, pulled out", not_allowed);
  auto processes   = trainees(2);
  auto const since = change_port_of_rank_1(processes, 2, " down");
  check_survivors(processes, 2, 1, Fault::peer_stalled, since, 0.8, 1.8);
  check_alone(Told::parse(processes.line(1)), since);
}

TEST_CASE("T11: when nothing reaches one of two ranks, both know in time", "[faults][network]") {
  if (!has_switch()) return skip("T11, two ranks", not_allowed);
  deafen_rank_1(2);
}

TEST_CASE("T11: when nothing reaches one of three ranks, all know in time, and the others agree", "[faults][network]") {
  if (!has_switch()) return skip("T11, three ranks", not_allowed);
  deafen_rank_1(3);
}

TEST_CASE("T32: a cable of 10 Mbit/s changes no bit", "[faults][network]") {
  if (!has_switch()) return skip("T32, a slow link", not_allowed);
  auto slow = true;
  unharmed(3, 2, 5, [&] {
    slow =
        std::system(("tc qdisc add dev " + port(1) + " root tbf rate 10mbit burst 32kbit latency 400ms").c_str()) == 0;
  });
  if (!slow) skip("T32, a slow link", "tc cannot make this link slow");
}

TEST_CASE("T33: a cable that is out for less than the limit, again and again, changes no bit", "[faults][network]") {
  if (!has_switch()) return skip("T33, a flapping link", not_allowed);
  unharmed(3, 5, 100, [] {
    for (int flap = 0; flap < 3; ++flap) {
      REQUIRE(ip("link set " + port(1) + " down"));
      std::this_thread::sleep_for(500ms);
      REQUIRE(ip("link set " + port(1) + " up"));
      std::this_thread::sleep_for(1s);
    }
  });
}

TEST_CASE("ranks with network stacks of their own meet where rank 0 is, and reduce", "[faults][network]") {
  if (!has_switch()) return skip("a meeting over a network", not_allowed);
  constexpr auto ranks = 3;
  plug_in(ranks);
  auto processes =
      Processes{ranks, [](Rank rank, Voice voice) {
                  move_out(rank);
                  auto transport = transport_of(0);
                  auto at  = std::move(transport.connect(Group{ranks, {rank}, {.meets_at = "10.9.0.1:29500"}})[0]);
                  auto sum = std::vector{static_cast<float>(rank + 1)};
                  RingAllReduce{}.all_reduce(at, Span<float>{sum}, Op::sum);
                  voice.say(std::to_string(sum[0]));
                }};
  for (Rank rank = 0; rank < ranks; ++rank) CHECK(processes.line(rank) == "6.000000");
}

TEST_CASE("C6: a pair of ranks that cannot reach each other is named by all", "[faults][network]") {
  if (!has_switch()) return skip("C6, a blocked pair", not_allowed);
  constexpr auto ranks = 4;
  plug_in(ranks);
  REQUIRE(ip("link set " + port(1) + " type bridge_slave isolated on"));  // what is isolated reaches only others
  REQUIRE(ip("link set " + port(3) + " type bridge_slave isolated on"));
  auto processes = Processes{ranks, [](Rank rank, Voice voice) {
                               move_out(rank);
                               auto transport          = transport_of(ranks);
                               transport.timeouts.join = 3s;
                               try {
                                 auto at = connected(transport, ranks, rank);
                                 auto x  = std::vector<float>(1000);
                                 RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum);
                                 voice.say("reduced");
                               } catch (Error const& error) { voice.say(error.what()); }
                             }};
  auto all       = std::vector<std::string>{};
  for (Rank rank = 0; rank < ranks; ++rank) all.push_back(processes.line(rank));
  auto const cause = all[0].substr(all[0].find(" in step 0: "));  // before it: who is told, and whom it lost
  for (auto const& one : all) CHECK_THAT(one, Catch::Contains(cause));
  CHECK_THAT(cause, Catch::Contains("rank 3 still misses 1 of 4: rank 1 (10.9.0.2:2222)") ||
                        Catch::Contains("rank 1 still misses 1 of 4: rank 3 (10.9.0.4:2222)"));
}
