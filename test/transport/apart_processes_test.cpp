// SPDX-License-Identifier: Apache-2.0
// FailureScope::peer, when ranks are killed and stopped. Ranks are processes here, made before any thread.
#include "test/support/processes.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace apart_processes_test {

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

template <class T> T apart(int ranks) {
  static auto jobs   = 0;
  auto transport     = T{};
  transport.timeouts = Timeouts{.heartbeat = 100ms, .warn_silent = 1s, .dead = 1'500ms, .join = 20s};
  transport.failures = FailureScope::peer;
  if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
  if constexpr (requires { transport.addresses; }) transport.addresses = free_loopback_addresses(ranks);
  else transport.name = "apart-" + std::to_string(::getpid()) + "-" + std::to_string(jobs++);
  return transport;
}

ConstBytes out(std::uint64_t const& x) { return std::as_bytes(Span<std::uint64_t const>{&x, 1}); }
Bytes in(std::uint64_t& x) { return std::as_writable_bytes(Span<std::uint64_t>{&x, 1}); }

/// All ranks but one tell each other whether that one is lost, until it is for all, and then 100 times more. How often
/// they did before.
template <class E> std::uint64_t talk_until_lost(E& at, Rank gone) {
  auto before = std::uint64_t{0};
  for (int after = 0; after < 100;) {
    auto const mine = std::uint64_t{at.lost(gone)};
    auto all        = mine == 1;
    for (Rank peer = 0; peer < at.size(); ++peer) {
      if (peer == at.rank() || peer == gone) continue;
      auto theirs = std::uint64_t{2};
      auto sent   = at.send(peer, Tag{7}, out(mine));
      at.recv(peer, Tag{7}, in(theirs)).wait();
      sent.wait();
      if (theirs > 1) throw Error{"another message than was sent"};
      all = all && theirs == 1;
    }
    before += all ? 0 : 1;
    after += all ? 1 : 0;
  }
  return before;
}

/// What a survivor says: when it knew, how much it did before, whether no part of a message is there, and the loss.
struct Told {
  double at            = 0;
  std::uint64_t rounds = 0;
  bool whole           = false;
  Rank lost            = -1;
  int fault            = -1;
  std::string text{};

  static Told parse(std::string const& line) {
    auto told = Told{};
    auto from = std::istringstream{line};
    from >> told.at >> told.rounds >> told.whole >> told.lost >> told.fault;
    std::getline(from, told.text);
    return told;
  }
  std::string line() const {
    auto to = std::ostringstream{};
    to.precision(17);
    to << at << ' ' << rounds << ' ' << whole << ' ' << lost << ' ' << fault << ' ' << text;
    return to.str();
  }
};

/// Receives from that rank until it is lost.
template <class E> Told receive_until_lost(E& at, Rank gone, Voice voice) {
  auto told  = Told{.whole = true};
  auto bytes = std::vector<std::byte>(1 << 20);
  try {
    for (int i = 0;; ++i) {
      auto pending = at.recv(gone, Tag{1}, bytes);
      while (!pending.done()) at.wait_any(100ms);
      for (auto const byte : bytes) told.whole = told.whole && byte == static_cast<std::byte>(i);
      if (i == 3) voice.say("ready");
    }
  } catch (PeerLost const& lost) {
    told.at    = seconds_now();
    told.lost  = lost.rank();
    told.fault = static_cast<int>(lost.fault());
    told.text  = lost.what();
  }
  return told;
}

/// Sends to all others until something happens.
template <class E> void send_for_ever(E& at) {
  for (int i = 0;; ++i) {
    auto const bytes = std::vector<std::byte>(1 << 20, static_cast<std::byte>(i));
    auto sent        = std::vector<typename E::pending>{};
    for (Rank peer = 0; peer < at.size(); ++peer)
      if (peer != at.rank()) sent.push_back(at.send(peer, Tag{1}, bytes));
    for (auto& pending : sent) pending.wait();
  }
}

template <class T> void live(T const& transport, int ranks, Rank rank, Rank gone, Voice voice) {
  auto at = std::move(transport.connect(Group{ranks, {rank}})[0]);
  if (rank == gone) return send_for_ever(at);
  auto told   = receive_until_lost(at, gone, voice);
  told.rounds = talk_until_lost(at, gone);
  voice.say(told.line());
}

void check_survivors(Processes& processes, int ranks, Rank gone, Fault fault, double since, double least, double most) {
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == gone) continue;
    auto const told = Told::parse(processes.line(rank));
    INFO("rank " << rank << " after " << told.at - since << " s: " << told.text);
    CHECK(told.lost == gone);
    CHECK(told.fault == static_cast<int>(fault));
    CHECK(told.whole);
    CHECK(told.at - since >= least);
    CHECK(told.at - since <= most);
    CHECK(processes.exit(rank) == 0);  // after 100 messages more
  }
}

}  // namespace

TEMPLATE_TEST_CASE("a rank that is killed apart, in mid-message, is missed, and the others go on", "[transport][fault]",
                   SharedMemoryTransport, TcpTransport) {
  auto const ranks     = GENERATE(3, 4);
  auto const gone      = GENERATE(0, 2);
  auto const transport = apart<TestType>(ranks);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) { live(transport, ranks, rank, gone, voice); }};
  for (Rank rank = 0; rank < ranks; ++rank)
    if (rank != gone) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(gone, SIGKILL);
  check_survivors(processes, ranks, gone, Fault::peer_lost, since, 0, 1);
  CHECK(processes.exit(gone) == 128 + SIGKILL);
}

TEMPLATE_TEST_CASE("a rank that is stopped apart is lost after Timeouts::dead, and told so when it comes back",
                   "[transport][fault]", SharedMemoryTransport, TcpTransport) {
  auto const ranks     = GENERATE(3, 4);
  Rank const gone      = 1;
  auto const transport = apart<TestType>(ranks);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) { live(transport, ranks, rank, gone, voice); }};
  for (Rank rank = 0; rank < ranks; ++rank)
    if (rank != gone) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(gone, SIGSTOP);
  check_survivors(processes, ranks, gone, Fault::peer_stalled, since, 1.5, 2.5);
  processes.send(gone, SIGCONT);
  CHECK_THAT(processes.line(gone),
             Catch::Contains("rank 1 lost rank ") && Catch::Contains("it went on without rank 1: "));
  CHECK(processes.exit(gone) == 138);
}

TEMPLATE_TEST_CASE("ranks talk on while one of them is stopped apart, and nobody has anything to do with it",
                   "[transport][fault]", SharedMemoryTransport, TcpTransport) {
  Rank const gone      = 2;
  auto const transport = apart<TestType>(3);
  auto processes       = Processes{3, [&](Rank rank, Voice voice) {
                               auto at = std::move(transport.connect(Group{3, {rank}})[0]);
                               voice.say("ready");
                               if (rank == gone)
                                 for (;;) ::pause();
                               auto const rounds = talk_until_lost(at, gone);
                               voice.say(Told{.at = seconds_now(), .rounds = rounds}.line());
                             }};
  for (Rank rank = 0; rank < 3; ++rank) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(gone, SIGSTOP);
  for (Rank rank = 0; rank < 2; ++rank) {
    auto const told = Told::parse(processes.line(rank));
    CHECK(told.rounds >= 100);
    CHECK(told.at - since >= 1.5);
    CHECK(told.at - since <= 3);
    CHECK(processes.exit(rank) == 0);
  }
}

}  // namespace apart_processes_test
