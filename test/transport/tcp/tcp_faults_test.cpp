// SPDX-License-Identifier: Apache-2.0
// What TcpTransport does when ranks die or stop. Ranks are processes here, made before any thread.
#include "test/support/processes.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <array>
#include <sstream>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto short_limits =
    Timeouts{.heartbeat = 100ms, .warn_silent = 500ms, .dead = 1'500ms, .warn_stuck = 500ms, .stuck = 60s, .join = 20s};

/// What a rank knows when it is over: when, as what kind of error, and the first cause.
struct Report {
  double at = 0;
  int kind = -1, culprit = -1;
  std::string cause;

  static Report parse(std::string const& line) {
    auto report = Report{};
    auto in     = std::istringstream{line};
    in >> report.at >> report.kind >> report.culprit;
    std::getline(in, report.cause);
    return report;
  }
  static std::string line(PeerLost const& lost) {
    auto const& l = lost.loss();
    auto s        = std::ostringstream{};
    s.precision(17);
    s << seconds_now() << ' ' << static_cast<int>(l.fault) << ' ' << l.rank << " step " << l.step << " operation "
      << l.sequence << ' ' << l.operation << " host " << l.host << ' ' << l.reason;
    return s.str();
  }
  bool is(Fault fault) const { return kind == static_cast<int>(fault); }
};

/// All-reduces, one a step, until something happens. Says "ready" after step 3, and what the PeerLost says.
template <class Step> void train(TcpTransport const& transport, int ranks, Rank rank, Voice voice, Step step) {
  auto at = std::move(transport.connect(Group{ranks, {rank}})[0]);
  auto x  = std::vector<float>(100'003, 1.0F);
  try {
    for (std::uint64_t i = 0;; ++i) {
      at.begin_step(i);
      if (i == 3) voice.say("ready");
      if (!step(at, i)) break;
      RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::max);
    }
    voice.say("done");
  } catch (PeerLost const& lost) {
    voice.say(Report::line(lost));
    throw;
  }
}

auto const go_on = [](TcpEndpoint&, std::uint64_t) { return true; };

/// Few ranks have all links, more a ring: then most have none with the one that is lost.
TcpTransport of_ranks(int ranks, Timeouts timeouts = {}) {
  return {.addresses = free_loopback_addresses(ranks),
          .timeouts  = timeouts,
          .topology  = ranks > 4 ? Topology::ring() : Topology::all_pairs()};
}

/// All but `culprit` tell the same cause, which names it, between `least` and `most` seconds after `since`.
void check_survivors(Processes& processes, int ranks, Rank culprit, Fault fault, double since, double least,
                     double most) {
  auto first = std::string{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == culprit) continue;
    auto const report = Report::parse(processes.line(rank));
    INFO("rank " << rank << " after " << report.at - since << " s: " << report.cause);
    CHECK(report.is(fault));
    CHECK(report.culprit == culprit);
    CHECK(report.at - since >= least);
    CHECK(report.at - since <= most);
    if (first.empty()) first = report.cause;
    CHECK(report.cause == first);
    CHECK(processes.exit(rank) == 138);
  }
}

}  // namespace

TEST_CASE("a rank that is killed in mid-operation is named by all others within a second", "[transport][tcp][fault]") {
  auto const ranks     = GENERATE(2, 4, 6);
  auto const culprit   = ranks - 1;
  auto const transport = of_ranks(ranks);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) { train(transport, ranks, rank, voice, go_on); }};
  for (Rank rank = 0; rank < ranks; ++rank) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(culprit, SIGKILL);
  check_survivors(processes, ranks, culprit, Fault::peer_lost, since, 0, 1);
  CHECK(processes.exit(culprit) == 128 + SIGKILL);
}

TEST_CASE("a rank that is killed between steps is named by all others within a second", "[transport][tcp][fault]") {
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(3)};
  auto processes       = Processes{3, [&](Rank rank, Voice voice) {
                               train(transport, 3, rank, voice, [&](TcpEndpoint&, std::uint64_t step) {
                                 if (rank == 0 && step == 5) {
                                   voice.say("computing");
                                   for (;;) ::pause();
                                 }
                                 return true;
                               });
                             }};
  processes.expect(0, "computing");
  for (Rank rank = 1; rank < 3; ++rank) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(0, SIGKILL);
  check_survivors(processes, 3, 0, Fault::peer_lost, since, 0, 1);
}

TEST_CASE("a rank that is stopped is declared dead after Timeouts::dead, and told so when it comes back",
          "[transport][tcp][fault]") {
  auto const ranks     = GENERATE(3, 6);
  auto const transport = of_ranks(ranks, short_limits);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) { train(transport, ranks, rank, voice, go_on); }};
  for (Rank rank = 0; rank < ranks; ++rank) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(1, SIGSTOP);
  check_survivors(processes, ranks, 1, Fault::peer_stalled, since, 1.5, 2.5);
  processes.send(1, SIGCONT);
  auto const report = Report::parse(processes.line(1));
  CHECK(report.is(Fault::evicted));
  CHECK(report.culprit == 1);
  CHECK_THAT(report.cause, Catch::Contains("the others went on without it"));
  CHECK(processes.exit(1) == 138);
}

TEST_CASE("a rank that is stopped for less than Timeouts::dead costs nothing but the time", "[transport][tcp][fault]") {
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(2), .timeouts = short_limits};
  auto processes       = Processes{2, [&](Rank rank, Voice voice) {
                               auto resumed = false;
                               auto until   = seconds_now() + 3600;
                               train(transport, 2, rank, voice, [&](TcpEndpoint& at, std::uint64_t step) {
                                 if (step == 3) until = seconds_now() + 1.5;
                                 auto over = std::array{seconds_now() > until ? 1.0F : 0.0F};  // of rank 0
                                 RingAllReduce{}.all_reduce(at, Span<float>{over}, Op::max);
                                 resumed = over[0] == 1.0F;
                                 return !resumed;
                               });
                             }};
  for (Rank rank = 0; rank < 2; ++rank) CHECK(processes.line(rank) == "ready");
  processes.send(1, SIGSTOP);
  auto const until = seconds_now() + 0.45;  // 0.3 of `dead`
  spin_until([&] { return seconds_now() > until; });
  processes.send(1, SIGCONT);
  for (Rank rank = 0; rank < 2; ++rank) {
    CHECK(processes.line(rank) == "done");
    CHECK(processes.exit(rank) == 0);
  }
}

TEST_CASE("a rank that lives but does not work is named, and not one that waits for it", "[transport][tcp][fault]") {
  auto timeouts        = short_limits;
  timeouts.stuck       = 1'500ms;
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(4), .timeouts = timeouts};
  auto processes       = Processes{4, [&](Rank rank, Voice voice) {
                               auto told = transport;
                               told.log  = [voice](std::string const& line) { voice.say(line); };
                               train(told, 4, rank, voice, [&](TcpEndpoint&, std::uint64_t step) {
                                 if (rank == 2 && step == 5) {
                                   voice.say("asleep");
                                   for (;;) ::pause();
                                 }
                                 return true;
                               });
                             }};
  processes.expect(2, "asleep");
  auto const since = seconds_now();
  auto first       = std::string{};
  for (Rank rank : {0, 1, 3}) {
    CHECK(processes.line(rank) == "ready");
    CHECK_THAT(processes.line(rank), Catch::Contains("rank " + std::to_string(rank) + ": step 5: waiting ") &&
                                         Catch::Contains("for rank 2 (host ") && Catch::Contains("last step 5"));
    auto line = processes.line(rank);
    while (line.find(": waiting ") != std::string::npos) line = processes.line(rank);  // of a peer that is late, too
    auto const report = Report::parse(line);
    INFO("rank " << rank << " after " << report.at - since << " s: " << line);
    CHECK(report.is(Fault::peer_stalled));
    CHECK(report.culprit == 2);
    CHECK_THAT(report.cause, Catch::Contains("it is alive, but nothing has moved for "));
    CHECK(report.at - since < 20);  // far from any other limit
    if (first.empty()) first = report.cause;
    CHECK(report.cause == first);
  }
}

TEST_CASE("a fault does not wait for a warning that would come later", "[transport][tcp][fault]") {
  auto const lives = GENERATE(true, false);
  auto now         = tcp::FailureDetector::Time{};
  auto detector    = tcp::FailureDetector{
         {.warn_silent = 30s, .dead = 3s, .warn_stuck = 30s, .stuck = 3s}, FailureScope::group, 0, 2, now};
  auto const tick  = detector.tick(10);
  auto const begin = now;
  auto warnings    = 0;
  auto found       = std::optional<tcp::FailureDetector::DetectedFailure>{};
  detector.begin(1, now);
  while (!found && now - begin < 20s) {
    now += tick;
    if (lives) detector.heard(1, {.step = 5}, "h", now);
    found = detector.check({.step = 6, .waits = true}, 1, now, [&](std::string const&) { ++warnings; });
  }
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK(now - begin >= 3s);
  CHECK(now - begin < 5s);
  CHECK(warnings == 0);
}

TEST_CASE("the death of a rank is told although nobody waits", "[transport][tcp][fault]") {
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(2)};
  auto processes       = Processes{2, [&](Rank rank, Voice voice) {
                               auto at = std::move(transport.connect(Group{2, {rank}})[0]);
                               voice.say("ready");
                               if (rank == 1)
                                 for (;;) ::pause();
                               try {
                                 for (;;) at.announce({});  // computes, and never asks for a message
                               } catch (PeerLost const& lost) {
                                 voice.say(Report::line(lost));
                                 throw;
                               }
                             }};
  for (Rank rank = 0; rank < 2; ++rank) CHECK(processes.line(rank) == "ready");
  auto const since = seconds_now();
  processes.send(1, SIGKILL);
  check_survivors(processes, 2, 1, Fault::peer_lost, since, 0, 1);
}

#if !defined(__SANITIZE_ADDRESS__)  // UBSan opens pipes to look at objects
TEST_CASE("a process without descriptors is told so, whichever it lacks", "[transport][tcp][fault]") {
  auto processes = Processes{1, [](Rank, Voice voice) {
                               auto const used = static_cast<rlim_t>(::dup(0));
                               auto few        = rlimit{};
                               ::getrlimit(RLIMIT_NOFILE, &few);
                               for (few.rlim_cur = used;; ++few.rlim_cur) {
                                 if (::setrlimit(RLIMIT_NOFILE, &few) != 0) throw Error{"the limit cannot be set"};
                                 try {
                                   TcpTransport{.log = [](std::string const&) {}}.connect(Group::all_local(2));
                                   return voice.say("enough");
                                 } catch (OutOfDescriptors const& error) { voice.say(error.what()); }
                               }
                             }};
  auto lines     = 0;
  for (auto line = processes.line(0); line != "enough"; line = processes.line(0), ++lines)
    REQUIRE_THAT(line, Catch::Contains("EMFILE") && Catch::Contains("ulimit -n"));
  CHECK(lines >= 10);
  CHECK(processes.exit(0) == 0);
}
#endif
