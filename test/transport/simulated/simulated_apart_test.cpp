// SPDX-License-Identifier: Apache-2.0
// A virtual rank that serves many, and FailureScope::peer: who is lost is lost for those who talk to it.
#include <chorale/transport/simulated.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;

namespace {

SimulatedTransport apart(SimulatedFaults faults = {}) {
  return {.faults = std::move(faults), .failures = FailureScope::peer};
}

ConstBytes out(int const& x) { return std::as_bytes(Span<int const>{&x, 1}); }
Bytes in(int& x) { return std::as_writable_bytes(Span<int>{&x, 1}); }

void expect(bool right, std::string const& what) {
  if (!right) throw Error{what};
}

/// Sends a number to that rank and takes another.
void greet(SimulatedEndpoint& at, Rank peer) {
  auto const mine = 100 + at.rank();
  auto theirs     = 0;
  auto sent       = at.send(peer, Tag{1}, out(mine));
  at.recv(peer, Tag{1}, in(theirs)).wait();
  sent.wait();
  expect(theirs == 100 + peer, "rank " + std::to_string(peer) + " said " + std::to_string(theirs));
}

/// What greet() throws: a PeerLost that names that peer, or this fails.
Fault loss_of(SimulatedEndpoint& at, Rank peer) {
  try {
    for (int i = 0; i < 100; ++i) greet(at, peer);
  } catch (PeerLost const& lost) {
    expect(lost.rank() == peer && at.lost(peer), "another rank is lost than " + std::to_string(peer));
    return lost.fault();
  }
  throw Error{"rank " + std::to_string(peer) + " is not lost"};
}

}  // namespace

TEST_CASE("who waits for anything goes on with the first message, or when its time is over", "[transport][simulated]") {
  auto const run = simulate(3, [](SimulatedEndpoint& at) {
    auto x = at.rank();
    if (at.rank() == 0) {
      auto a = at.recv(1, Tag{1}, in(x)), b = at.recv(2, Tag{1}, in(x));
      expect(!at.wait_any(1ms) && at.now() == VirtualTime{1ms}, "nothing has come in a millisecond");
      expect(!a.done() && !b.done(), "a message came from nowhere");
      expect(at.wait_any(1s) && at.now() < VirtualTime{6ms}, "the message after 5 ms was not heard of");
      expect(b.done() && !a.done() && x == 2, "another one came first");
      while (!a.done()) at.wait_any(1s);
      expect(x == 1 && at.now() >= VirtualTime{9ms}, "the second one came too early");
      return;
    }
    at.work(at.rank() == 1 ? 9ms : 5ms);
    at.send(0, Tag{1}, out(x)).wait();
  });
  run.check();
}

TEST_CASE("a message that has left wakes who waits for anything, and sends it", "[transport][simulated]") {
  auto const model = NetworkModel{.far = {.latency = 1s, .bytes_per_second = 1e6}};
  simulate(2,
           [](SimulatedEndpoint& at) {
             auto bytes = std::vector<std::byte>(1'000);
             for (int i = 1; i <= 2; ++i) {  // before its first rest, and after
               if (at.rank() == 1) {
                 at.recv(0, Tag{1}, bytes).wait();
                 continue;
               }
               auto sent = at.send(1, Tag{1}, bytes);
               while (!sent.done()) at.wait_any(10s);
               expect(at.now() < i * VirtualTime{1'100us}, "it waited until the message was there");
             }
           },
           {.model = model})
      .check();
}

TEST_CASE("ranks that all wait for anything are told so at once", "[transport][simulated]") {
  auto const run = simulate(
      3,
      [](SimulatedEndpoint& at) {
        auto x       = 0;
        auto pending = at.recv((at.rank() + 1) % 3, Tag{1}, in(x));
        while (!pending.done()) at.wait_any(10ms);
      },
      apart());
  CHECK(run.time < VirtualTime{1ms});
  CHECK_THAT(run.deadlock, Catch::Contains("rank 0 looks, and nothing comes"));
  for (auto const& rank : run.ranks) CHECK(rank.lost >= 0);
}

TEST_CASE("a rank that is killed apart is lost for those who talk to it, and the others go on",
          "[transport][simulated]") {
  auto const run = simulate(
      4,
      [](SimulatedEndpoint& at) {
        if (at.rank() == 3) {
          for (;;) at.work(1ms), greet(at, 2);  // until it is killed
        }
        if (at.rank() == 2) {
          expect(loss_of(at, 3) == Fault::peer_lost, "another fault");
          expect(!at.lost(0) && !at.lost(1), "others are lost, too");
        }
        for (int i = 0; i < 200; ++i)
          for (Rank peer = 0; peer < 3; ++peer)
            if (peer != at.rank()) greet(at, peer);
      },
      apart({.scheduled = {{SimulatedFault::kill, 3, 4}}}));
  for (std::size_t rank : {0U, 1U, 2U}) CHECK(run.ranks[rank].message == "");
  CHECK(run.ranks[3].was_killed);
}

TEST_CASE("a cut, a corrupt message and one that never arrives part two ranks, and no others",
          "[transport][simulated]") {
  auto const [what, mine, theirs] = GENERATE(std::tuple{SimulatedFault::cut, Fault::peer_lost, Fault::evicted},
                                             std::tuple{SimulatedFault::corrupt, Fault::evicted, Fault::frame_corrupt},
                                             std::tuple{SimulatedFault::drop, Fault::peer_lost, Fault::evicted});
  auto faults                     = SimulatedFaults{.scheduled = {{what, 0, 0}}, .tries = 1};
  auto const run                  = simulate(
      3,
      [mine = mine, theirs = theirs](SimulatedEndpoint& at) {
        if (at.rank() < 2) expect(loss_of(at, 1 - at.rank()) == (at.rank() == 0 ? mine : theirs), "another fault");
        if (at.rank() < 2) greet(at, 2);
        for (Rank peer = 0; at.rank() == 2 && peer < 2; ++peer) greet(at, peer);
      },
      apart(faults));
  run.check();
  CHECK(run.injected.size() == 1);
}

TEST_CASE("what had arrived before a rank failed is received; its own operations all throw", "[transport][simulated]") {
  auto const run = simulate(
      3,
      [](SimulatedEndpoint& at) {
        auto x = at.rank();
        if (at.rank() == 1) {
          at.send(0, Tag{1}, out(x)).wait();
          at.work(1ms);
          at.fail("the disk is full");
          expect(at.lost(0) && at.lost(2), "a rank that failed has lost nobody");
          greet(at, 2);
        }
        if (at.rank() == 2) return at.work(5ms);
        at.work(2ms);
        expect(at.lost(1) && !at.lost(2), "the loss was not told");
        at.recv(1, Tag{1}, in(x)).wait();
        expect(x == 1, "another message");
        at.recv(1, Tag{1}, in(x)).wait();
      },
      apart());
  CHECK_THAT(run.ranks[0].message, Catch::Contains("rank 0 lost rank 1") && Catch::Contains("the disk is full"));
  CHECK_THAT(run.ranks[1].message, Catch::Contains("the disk is full"));
  CHECK(run.ranks[2].message == "");
}

TEST_CASE("the end of a rank is heard of on the other side of a partition when that has passed",
          "[transport][simulated]") {
  auto healed = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    auto faults    = SimulatedFaults{.seed = seed, .scheduled = {{SimulatedFault::partition, 0, 0}}};
    auto const run = simulate(
        2,
        [](SimulatedEndpoint& at) {
          auto x = 0;
          if (at.rank() == 1) return at.recv(0, Tag{2}, in(x)).wait();
          at.send(1, Tag{1}, out(x));
          throw Error{"it is full"};
        },
        apart(faults));
    CHECK(run.ranks[1].lost == 0);
    healed += run.ranks[1].message.find("it is full") != std::string::npos ? 1 : 0;
    CHECK(run.time <= VirtualTime{5s});
  }
  CHECK(healed > 5);
}
