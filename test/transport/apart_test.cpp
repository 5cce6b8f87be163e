// SPDX-License-Identifier: Apache-2.0
// FailureScope::peer, with ranks that are threads: who is lost is lost for those who talk to it, and the others go on.
// apart_processes_test.cpp kills and stops processes.
#include "test/support/on_ranks.hpp"

#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto quick =
    Timeouts{.heartbeat = 20ms, .warn_silent = 10s, .dead = 10s, .warn_stuck = 100ms, .stuck = 300ms, .join = 20s};

template <class T> T apart() {
  auto transport     = T{};
  transport.failures = FailureScope::peer;
  if constexpr (requires { transport.timeouts; }) transport.timeouts = quick;
  if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
  return transport;
}

ConstBytes out(std::uint64_t const& x) { return std::as_bytes(Span<std::uint64_t const>{&x, 1}); }
Bytes in(std::uint64_t& x) { return std::as_writable_bytes(Span<std::uint64_t>{&x, 1}); }

void expect(bool right, std::string const& what) {
  if (!right) throw Error{what};
}

/// Each rank of `with` sends 100 messages to each other one, and receives theirs.
template <class E> void chat(E& at, std::vector<Rank> const& with) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    auto const mine = 1'000 * i + static_cast<std::uint64_t>(at.rank());
    for (Rank const peer : with) {
      if (peer == at.rank()) continue;
      auto theirs = std::uint64_t{0};
      auto sent   = at.send(peer, Tag{9}, out(mine));
      at.recv(peer, Tag{9}, in(theirs)).wait();
      sent.wait();
      expect(theirs == 1'000 * i + static_cast<std::uint64_t>(peer), "another message from " + std::to_string(peer));
    }
  }
}

std::vector<Rank> all_but(Rank lost, int ranks) {
  auto others = std::vector<Rank>{};
  for (Rank rank = 0; rank < ranks; ++rank)
    if (rank != lost) others.push_back(rank);
  return others;
}

/// What f() throws: a PeerLost that names that rank, or this fails.
template <class F> std::string loss_of(Rank rank, F f) {
  try {
    f();
  } catch (PeerLost const& lost) {
    expect(lost.rank() == rank, "a PeerLost that names rank " + std::to_string(lost.rank()));
    return lost.what();
  }
  throw Error{"nothing was thrown"};
}

void expect_says(std::string const& what, std::string const& part) {
  expect(what.find(part) != what.npos, "\"" + what + "\" where \"" + part + "\" was expected");
}

/// done() until it is, or throws.
template <class E> void poll(E& at, typename E::pending& pending) {
  while (!pending.done()) at.wait_any(1s);
}

}  // namespace

TEMPLATE_TEST_CASE("a rank that fails apart is lost for those who talk to it, and the others go on",
                   "[transport][apart]", LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const ranks = GENERATE(3, 4);
  Rank const gone  = ranks - 1;
  auto const ended = on_ranks(
      ranks, 0,
      [&](auto& at, auto&) {
        auto const others = all_but(gone, ranks);
        auto x            = std::uint64_t{0};
        chat(at, all_but(-1, ranks));
        if (at.rank() != gone) at.send(gone, Tag{3}, out(x)).wait();
        if (at.rank() == gone) {
          for (Rank const peer : others) at.recv(peer, Tag{3}, in(x)).wait();  // all have what it sent
          at.fail("the disk is full.");
          expect(at.lost(0) && at.lost(gone), "a rank that failed has lost nobody");
          expect_says(loss_of(gone, [&] { at.recv(0, Tag{1}, in(x)).wait(); }), "the disk is full.");
          return;
        }
        auto pending = at.recv(gone, Tag{1}, in(x));
        expect_says(loss_of(gone, [&] { pending.wait(); }), "the disk is full.");
        expect_says(loss_of(gone, [&] { pending.done(); }), "the disk is full.");
        expect_says(loss_of(gone, [&] { at.recv(gone, Tag{2}, in(x)).wait(); }), "the disk is full.");
        expect_says(loss_of(gone, [&] { at.send(gone, Tag{1}, out(x)); }), "the disk is full.");
        expect(at.lost(gone) && !at.lost(others[0]) && !at.lost(at.rank()),
               "other ranks are lost than the one that is");
        chat(at, others);
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_TEST_CASE("a rank that ends apart is lost with that reason, and is missed by nobody else",
                   "[transport][apart]", LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const ranks = GENERATE(3, 4);
  auto const ended = on_ranks(
      ranks, 0,
      [&](auto& at, auto&) {
        auto x = std::uint64_t{42};
        if (at.rank() == 0) {
          for (Rank peer = 1; peer < ranks; ++peer) at.send(peer, Tag{1}, out(x)).wait();
          auto const gone = std::move(at);
          return;
        }
        auto got = std::uint64_t{0};
        at.recv(0, Tag{1}, in(got)).wait();
        expect(got == 42, "another message");
        auto pending = at.recv(0, Tag{1}, in(got));
        expect_says(loss_of(0, [&] { poll(at, pending); }), "it had ended and left the group");
        expect(at.lost(0), "a rank that ended is not lost");
        chat(at, all_but(0, ranks));
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("what a rank had sent over TCP before it ended is received, however late", "[transport][tcp][apart]") {
  auto const n   = GENERATE(as<std::size_t>{}, 8, 300'000);  // one frame, and several
  auto endpoints = apart<TcpTransport>().connect(Group::all_local(2));
  auto sent = std::vector<std::byte>(n, std::byte{7}), got = std::vector<std::byte>(n);
  {
    auto gone  = std::move(endpoints[1]);
    auto first = gone.send(0, Tag{1}, sent), second = gone.send(0, Tag{1}, sent);
    first.wait();
    second.wait();
  }
  auto& at = endpoints[0];
  auto x   = std::uint64_t{0};
  CHECK_THROWS_AS(([&] {
                    for (;;) at.send(1, Tag{1}, out(x)).wait();
                  }()),
                  PeerLost);  // once it is known
  CHECK_FALSE(at.lost(1));
  at.recv(1, Tag{1}, got).wait();
  CHECK(got == sent);
  CHECK_FALSE(at.lost(1));
  got.assign(n, std::byte{0});
  at.recv(1, Tag{1}, got).wait();
  CHECK(got == sent);
  CHECK(at.lost(1));
  CHECK_THROWS_WITH(at.recv(1, Tag{1}, got).wait(), Catch::Contains("it had ended and left the group"));
}

TEMPLATE_TEST_CASE("ranks that bring different sizes apart are told, and the others go on", "[transport][apart]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const ended = on_ranks(
      4, 0,
      [&](auto& at, auto&) {
        if (at.rank() >= 2) return chat(at, {2, 3});
        auto bytes = std::array<std::byte, 16>{};
        auto sent  = at.rank() == 0 ? at.send(1, Tag{1}, bytes) : at.recv(0, Tag{1}, Bytes{bytes}.first(8));
        auto text  = std::string{};
        try {
          sent.wait();
          at.recv(1 - at.rank(), Tag{2}, bytes).wait();
        } catch (Error const& error) { text = error.what(); }
        expect_says(text, "rank 0 sent 16 bytes where rank 1 expected 8 bytes");
        expect(at.lost(1 - at.rank()) && !at.lost(2), "others are lost");
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_TEST_CASE("a message of another size is told to calls about its sender alone", "[transport][apart]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const ended = on_ranks(
      3, 0,
      [&](auto& at, auto&) {
        auto x     = std::uint64_t{0};
        auto bytes = std::array<std::byte, 16>{};
        if (at.rank() == 0) {
          at.recv(2, Tag{1}, in(x)).wait();
          at.send(2, Tag{1}, out(x)).wait();
        } else if (at.rank() == 1) {
          try {
            at.send(2, Tag{1}, bytes).wait();
            at.recv(2, Tag{1}, bytes).wait();
          } catch (Error const& error) {
            expect_says(error.what(), "rank 1 sent 16 bytes where rank 2 expected 8 bytes");
          }
        } else {
          auto of_0 = at.recv(0, Tag{1}, in(x)), of_1 = at.recv(1, Tag{1}, Bytes{bytes}.first(8));
          for (int turn = 0; turn < 200 && !at.lost(1); ++turn) {
            expect(!of_0.done(), "rank 0 has sent before it was asked");
            at.wait_any(1ms);
          }
          auto text = std::string{};
          try {
            of_1.wait();
          } catch (Disagreement const& error) { text = error.what(); }
          expect_says(text, "rank 1 sent 16 bytes where rank 2 expected 8 bytes");
          at.send(0, Tag{1}, out(x)).wait();
          of_0.wait();
        }
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_TEST_CASE("a rank that is only polled may compute for longer than Timeouts::stuck", "[transport][apart]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto done        = std::atomic<bool>{false};
  auto const ended = on_ranks(
      3, 0,
      [&](auto& at, auto&) {
        auto x = std::uint64_t{0};
        if (at.rank() == 1) {  // computes until the others have had enough
          spin_until([&] { return done.load(); });
          at.send(0, Tag{1}, out(x)).wait();
        } else if (at.rank() == 2) {  // waits for one that polls
          at.recv(0, Tag{2}, in(x)).wait();
        } else {
          auto pending     = at.recv(1, Tag{1}, in(x));
          auto const until = std::chrono::steady_clock::now() + 3 * quick.stuck;
          while (std::chrono::steady_clock::now() < until) {
            expect(!pending.done(), "a message of nobody");
            at.wait_any(10ms);
          }
          done = true;
          poll(at, pending);
          at.send(2, Tag{2}, out(x)).wait();
        }
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_TEST_CASE("a rank that is waited for apart, and does nothing, is lost after Timeouts::stuck for who waits",
                   "[transport][apart]", SharedMemoryTransport, TcpTransport) {
  auto done        = std::atomic<int>{0};
  auto const ended = on_ranks(
      3, 0,
      [&](auto& at, auto&) {
        auto x           = std::uint64_t{0};
        auto const limit = Deadline::after(10s);
        if (at.rank() == 0) return spin_until([&] { return done == 2 || limit.passed(); });
        if (at.rank() == 1) {
          auto const since = std::chrono::steady_clock::now();
          expect_says(loss_of(0, [&] { at.recv(0, Tag{1}, in(x)).wait(); }), "moved");
          expect(std::chrono::steady_clock::now() - since >= quick.stuck, "it was too early");
          expect(std::chrono::steady_clock::now() - since <= quick.stuck + 1s, "it was too late");
        }
        chat(at, {1, 2});
        expect(at.lost(0) == (at.rank() == 1), "it is lost for the others, too");
        ++done;
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_TEST_CASE("wait_any ends with the first message of any peer, and with the time", "[transport][apart]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  constexpr int workers = 3, rounds = 500;
  auto const failures = GENERATE(FailureScope::group, FailureScope::peer);
  auto transport      = apart<TestType>();
  transport.failures  = failures;
  auto const begin    = std::chrono::steady_clock::now();
  auto const ended    = on_ranks(
      workers + 1, 0,
      [&](auto& at, auto&) {
        auto x = std::uint64_t{0};
        if (at.rank() < workers) {
          for (std::uint64_t i = 0; i < rounds; ++i) {
            at.send(workers, Tag{1}, out(i)).wait();
            at.recv(workers, Tag{2}, in(x)).wait();
            expect(x == i + 1, "another answer");
          }
          at.recv(workers, Tag{3}, in(x)).wait();  // lives until the server is done with it
          return;
        }
        auto asked    = std::array<std::uint64_t, workers>{};
        auto answers  = std::array<std::uint64_t, workers>{};
        using pending = typename std::remove_reference_t<decltype(at)>::pending;
        auto asks     = std::vector<pending>{};
        auto sent     = std::vector<pending>(workers);
        for (Rank rank = 0; rank < workers; ++rank)
          asks.push_back(at.recv(rank, Tag{1}, in(asked[static_cast<std::size_t>(rank)])));
        for (int served = 0; served < workers * rounds;) {
          auto any = false;
          for (Rank rank = 0; rank < workers; ++rank) {
            auto const i = static_cast<std::size_t>(rank);
            if (answers[i] == rounds || !asks[i].done()) continue;
            any = true;
            sent[i].wait();
            expect(asked[i] + 1 == ++answers[i], "another question");
            sent[i] = at.send(rank, Tag{2}, out(answers[i]));
            if (answers[i] < rounds) asks[i] = at.recv(rank, Tag{1}, in(asked[i]));
            ++served;
          }
          if (!any) expect(at.wait_any(20s), "a message came, and wait_any did not end");
        }
        for (auto& answer : sent) answer.wait();
        while (at.wait_any(0s)) {}  // what moved before
        expect(!at.wait_any(20ms), "nothing came, and it did not say so");
        for (Rank rank = 0; rank < workers; ++rank) at.send(rank, Tag{3}, out(x)).wait();
      },
      transport);
  for (auto const& rank : ended) CHECK(rank.error == "");
  CHECK(std::chrono::steady_clock::now() - begin < 15s);  // no wait_any took its 20 s
}

TEMPLATE_TEST_CASE("wait_any does not wait while there is more of a long message to take", "[transport][apart]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const ended = on_ranks(
      2, 0,
      [&](auto& at, auto&) {
        auto x      = std::uint64_t{0};
        auto longer = std::vector<std::byte>(1 << 19);
        if (at.rank() == 0) {
          at.send(1, Tag{1}, longer).wait();
          at.recv(1, Tag{2}, in(x)).wait();
          return;
        }
        auto pending = at.recv(0, Tag{1}, longer);
        std::this_thread::sleep_for(50ms);  // until it has begun
        pending.done();
        std::this_thread::sleep_for(50ms);  // until as much has come as has room
        while (!pending.done()) expect(at.wait_any(5s), "it waited in vain, though there was something to take");
        at.send(0, Tag{2}, out(x)).wait();
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_TEST_CASE("wait_any ends when a rank is lost", "[transport][apart]", LocalTransport, SharedMemoryTransport,
                   TcpTransport) {
  auto const begin = std::chrono::steady_clock::now();
  auto const ended = on_ranks(
      2, 0,
      [&](auto& at, auto&) {
        auto x = std::uint64_t{0};
        if (at.rank() == 0) {
          at.recv(1, Tag{1}, in(x)).wait();
          return at.fail("it was tired.");
        }
        at.wait_any(0s);
        at.send(0, Tag{1}, out(x)).wait();
        while (!at.lost(0)) at.wait_any(20s);
      },
      apart<TestType>());
  for (auto const& rank : ended) CHECK(rank.error == "");
  CHECK(std::chrono::steady_clock::now() - begin < 15s);
}

TEMPLATE_TEST_CASE("nothing can be accessed in place where failures are apart", "[transport][apart]", LocalTransport,
                   SharedMemoryTransport) {
  auto endpoints = apart<TestType>().connect(Group::all_local(1));
  CHECK_THROWS_WITH(endpoints[0].expose(Tag{}, {}), Catch::Contains("needs all ranks"));
}

TEST_CASE("decorators pass on who is lost, and rest() waits where the transport can", "[transport][apart]") {
  auto endpoints = Counting<LocalTransport>{apart<LocalTransport>()}.connect(Group::all_local(2));
  rest(endpoints[0], 0s);  // it listens from now on
  CHECK_FALSE(rest(endpoints[0], 1ms));
  CHECK_FALSE(endpoints[0].lost(1));
  endpoints.pop_back();
  CHECK(rest(endpoints[0], 20s));
  CHECK(endpoints[0].lost(1));
}
