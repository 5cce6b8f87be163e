// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"
#include "test/support/thread_state.hpp"

#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace local_test {

using namespace chorale;
using namespace chorale::test;

namespace {

using Transports = std::tuple<LocalTransport, Counting<LocalTransport>>;

static_assert(Transport<LocalTransport> && Transport<Counting<LocalTransport>>);
static_assert(DirectAccessEndpoint<LocalEndpoint> && DirectAccessEndpoint<CountingEndpoint<LocalEndpoint>>);
static_assert(!CollectiveTransport<LocalTransport>);

struct OnHost {
  struct device {
    static constexpr Memory memory = Memory::host;
  };
};
struct ToCuda {
  struct device {
    static constexpr Memory memory = Memory::cuda;
  };
};
static_assert(Reaches<LocalTransport, OnHost> && !Reaches<LocalTransport, ToCuda>);
static_assert(Reaches<Counting<LocalTransport>, OnHost> && !Reaches<Counting<LocalTransport>, ToCuda>);

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

}  // namespace

TEMPLATE_LIST_TEST_CASE("every pair of ranks exchanges what was sent", "[transport][contract]", Transports) {
  auto const ranks = GENERATE(1, 2, 3, 7);
  auto const ended = on_ranks<TestType>(ranks, 100, [](auto& at, auto& x) {
    auto pendings = std::vector<typename TestType::endpoint::pending>{};
    for (Rank peer = 0; peer < at.size(); ++peer) pendings.push_back(at.send(peer, Tag{1}, out(x)));  // itself, too
    for (Rank peer = 0; peer < at.size(); ++peer) {
      auto got = std::vector<float>(100);
      at.recv(peer, Tag{1}, in(got)).wait();
      if (!same_bits(got, values_of(peer, 100))) throw Error{"rank " + std::to_string(peer) + " sent something else"};
    }
    for (auto& pending : pendings) pending.wait();
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_LIST_TEST_CASE("messages with different tags complete in any order, those with one tag in the order sent",
                        "[transport][contract]", Transports) {
  auto const ended = on_ranks<TestType>(2, 8, [](auto& at, auto& x) {
    if (at.rank() == 0) {
      auto sent = std::array{at.send(1, Tag{5}, out(x.subspan(0, 2))), at.send(1, Tag{6}, out(x.subspan(2, 2))),
                             at.send(1, Tag{5}, out(x.subspan(4, 2))), at.send(1, Tag{7}, out(x.subspan(6, 2)))};
      for (auto& pending : sent) pending.wait();
    } else {
      at.recv(0, Tag{7}, in(x.subspan(6, 2))).wait();
      at.recv(0, Tag{5}, in(x.subspan(0, 2))).wait();
      at.recv(0, Tag{5}, in(x.subspan(4, 2))).wait();
      at.recv(0, Tag{6}, in(x.subspan(2, 2))).wait();
    }
  });
  CHECK(ended[1].error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 8)));
}

TEMPLATE_LIST_TEST_CASE("a pending that was made by default is done, and done() does not block",
                        "[transport][contract]", Transports) {
  auto pending = typename TestType::endpoint::pending{};
  CHECK(pending.done());
  pending.wait();
  auto endpoints = TestType{}.connect(Group::all_local(2));
  auto x = std::array{1.0F, 2.0F}, y = std::array{0.0F, 0.0F};
  auto received = endpoints[1].recv(0, Tag{1}, in(y));
  CHECK_FALSE(received.done());
  auto sent = endpoints[0].send(1, Tag{1}, out(x));
  CHECK_FALSE(sent.done());  // nobody has read it
  auto moved = std::move(endpoints[1]);
  CHECK(received.done());
  CHECK(received.done());
  CHECK(sent.done());
  CHECK(y == x);
  CHECK(moved.rank() == 1);
}

TEST_CASE("64 messages may be under way from one rank to another, and the next send waits", "[transport][local]") {
  auto endpoints = LocalTransport{.timeout = std::chrono::milliseconds{20}}.connect(Group::all_local(2));
  auto x         = std::array{1.0F};
  auto sent      = std::vector<LocalEndpoint::pending>{};
  for (unsigned tag = 0; tag < 64; ++tag) sent.push_back(endpoints[0].send(1, Tag{tag}, out(x)));
  SECTION("until there is room") {
    endpoints[1].recv(0, Tag{63}, in(x)).wait();
    CHECK(sent[63].done());
    endpoints[0].send(1, Tag{64}, out(x));
    CHECK(sent[63].done());  // its place holds another message now
    CHECK_FALSE(sent[0].done());
  }
  SECTION("or the timeout") {
    CHECK_THROWS_WITH(endpoints[0].send(1, Tag{64}, out(x)),
                      Catch::Contains("lost rank 1") && Catch::Contains("64 messages"));
  }
}

TEST_CASE("more messages than slots pass in order while the receiver keeps up", "[transport][local]") {
  auto const ended = on_ranks<LocalTransport>(2, 5'000, [](auto& at, auto& x) {
    auto sent = std::vector<LocalEndpoint::pending>{};
    for (std::size_t i = 0; i < x.size(); ++i)
      if (at.rank() == 0) sent.push_back(at.send(1, Tag{static_cast<unsigned>(i % 3)}, out(x.subspan(i, 1))));
      else at.recv(0, Tag{static_cast<unsigned>(i % 3)}, in(x.subspan(i, 1))).wait();
    for (auto& pending : sent) pending.wait();
  });
  CHECK(ended[0].error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 5'000)));
}

TEST_CASE("a message of another size than expected is an error on both sides", "[transport][local]") {
  auto const ended = on_ranks<LocalTransport>(2, 10, [](auto& at, auto& x) {
    if (at.rank() == 0) at.send(1, Tag{3}, out(x)).wait();
    else at.recv(0, Tag{3}, in(x.first(4))).wait();
  });
  for (auto const& rank : ended)
    CHECK_THAT(rank.error, Catch::Contains("rank 0 sent 40 bytes where rank 1 expected 16 bytes, tag 3"));
}

TEST_CASE("a wait that is too long names whom it waited for, the tag and the operation", "[transport][local]") {
  auto const ended = on_ranks<LocalTransport>(
      3, 4,
      [](auto& at, auto& x) {
        if (at.rank() == 1) at.recv(2, Tag{11}, in(x)).wait();
        if (at.rank() == 0) at.recv(1, Tag{12}, in(x)).wait();  // begins later, or sees rank 1's root cause
      },
      LocalTransport{.timeout = std::chrono::milliseconds{30}});
  auto const late = ended[1].lost == 1;  // then rank 0's root cause came first
  CHECK_THAT(ended[1].error, Catch::Contains(late ? "rank 1 failed" : "lost rank 2") && Catch::Contains("30 ms") &&
                                 Catch::Contains(late ? "recv, tag 12" : "recv, tag 11"));
  CHECK(ended[0].was_lost);
  CHECK(ended[0].lost == ended[1].lost);  // one cause for all
}

TEST_CASE("a rank that fails ends every wait, now and later, with its own sentence", "[transport][local]") {
  auto endpoints = LocalTransport{}.connect(Group::all_local(3));
  auto x         = std::array{1.0F};
  auto pending   = endpoints[0].recv(2, Tag{1}, in(x));
  auto posted    = endpoints[2].send(0, Tag{1}, out(x));
  endpoints[1].fail("the disk is full.");
  endpoints[2].fail("something that came of it.");
  auto const named = Catch::Contains("lost rank 1 in step 0: the disk is full.");
  CHECK_THROWS_WITH(pending.wait(), named);
  CHECK_THROWS_WITH(posted.done(), named);
  CHECK_THROWS_WITH(endpoints[2].send(0, Tag{2}, out(x)), named);
  CHECK_THROWS_WITH(endpoints[0].recv(1, Tag{2}, in(x)).wait(), named);
  CHECK_THROWS_WITH(endpoints[0].hold(4), named);
  CHECK_THROWS_WITH(endpoints[0].expose(Tag{0}, in(x)), named);
}

TEST_CASE("a message that was taken is sent, however soon its receiver ends", "[transport][local]") {
  auto const x = std::array{1.0F};
  for (unsigned round = 0; round < 4'000; ++round) {
    auto endpoints      = LocalTransport{}.connect(Group::all_local(2));
    auto const received = std::async(std::launch::async, [&] {
      auto at = std::move(endpoints[1]);  // ends here
      auto y  = std::array{0.0F};
      for (auto turns = round * 7'919 % 30'000; turns != 0; --turns) relax();  // the sender spins, or goes to sleep
      at.recv(0, Tag{1}, in(y)).wait();
    });
    REQUIRE_NOTHROW(endpoints[0].send(1, Tag{1}, out(x)).wait());
  }
}

TEST_CASE("no rank reads the memory of another after it failed", "[transport][local]") {
  for (int round = 0; round < 20; ++round) {
    auto const ended = on_ranks<LocalTransport>(3, 100'000, [](auto& at, auto& x) {
      auto mine = std::vector<float>(x.begin(), x.end());  // freed when this rank throws
      auto last = std::vector<float>(x.size());
      try {
        for (int step = 0;; ++step) {
          if (at.rank() == 1 && step == 3) throw Error{"enough."};
          auto sent = at.send((at.rank() + 1) % 3, Tag{}, out(mine));
          at.recv((at.rank() + 2) % 3, Tag{}, in(last)).wait();
          sent.wait();
        }
      } catch (Error const& error) {
        at.fail(error.what());  // before `mine` goes
        throw;
      }
    });
    CHECK(ended[0].lost == 1);
    CHECK(ended[2].lost == 1);
  }
}

TEST_CASE("what a rank writes after it failed is in no message from it", "[transport][local]") {
  constexpr std::size_t n = 9'000'000, late = n - 500'000;  // not at the end, which may be copied first
  auto mine = std::vector<float>(n);
  for (int round = 0; round < 8; ++round) {
    auto const got = std::make_unique_for_overwrite<float[]>(n);  // new pages: copied slowly
    auto begins    = std::atomic<bool>{false};
    got[late] = mine[late] = 0;
    on_ranks<LocalTransport>(2, 0, [&](auto& at, auto&) {
      if (at.rank() == 0) {
        static_cast<void>(at.send(1, Tag{}, out(mine)));
        while (!begins) std::this_thread::yield();
        auto const until = std::chrono::steady_clock::now() + std::chrono::milliseconds{1};
        while (std::chrono::steady_clock::now() < until) {}  // rank 1 copies
        at.fail("enough.");
        mine[late] = 1;
      } else {
        begins = true;
        at.recv(0, Tag{}, in({got.get(), n})).wait();
      }
    });
    CHECK(got[late] == 0);
  }
}

TEST_CASE("ranks read what others expose, and meet again when all have left", "[transport][local]") {
  auto const ended = on_ranks<LocalTransport>(4, 8, [](auto& at, auto& x) {
    for (unsigned round = 0; round < 200; ++round) {
      for (auto& value : x) value = static_cast<float>(round + static_cast<unsigned>(at.rank()));
      auto const tag = Tag{round % 3 * 64};  // all three share one slot
      at.expose(tag, in(x)).wait();
      for (Rank peer = 0; peer < 4; ++peer) {
        auto const hold = at.hold(sizeof(float));
        auto const seen = *reinterpret_cast<float const*>(at.peer(peer, tag).data());
        if (seen != static_cast<float>(round + static_cast<unsigned>(peer))) throw Error{"a stale value"};
      }
      at.leave(tag).wait();
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a rank that waits for what another exposes or leaves sleeps, and is woken", "[transport][local]") {
  auto const ended = on_ranks<LocalTransport>(
      2, 8,
      [](auto& at, auto& x) {
        for (unsigned round = 0; round < 20; ++round) {
          auto const late = [&] {  // one rank comes when the other sleeps
            if (at.rank() != static_cast<Rank>(round % 2) && !await_sleep("rank " + std::to_string(round % 2)))
              throw Error{"the other rank does not sleep"};
          };
          late();
          at.expose(Tag{round}, in(x)).wait();
          late();
          at.leave(Tag{round}).wait();
        }
      },
      LocalTransport{.timeout = std::chrono::seconds{20}});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("ranks that expose different tags in one place are told", "[transport][local]") {
  auto const ended = on_ranks<LocalTransport>(
      2, 4, [](auto& at, auto& x) { at.expose(Tag{at.rank() == 0 ? 7U : 71U}, in(x)).wait(); });
  for (auto const& rank : ended) CHECK_THAT(rank.error, Catch::Contains("exposed tag"));
}

TEST_CASE("a counting endpoint adds up messages, bytes and access in place", "[transport][counting]") {
  auto endpoints = Counting<LocalTransport>{}.connect(Group::all_local(1));
  auto& at       = endpoints[0];
  auto x         = std::array{1.0F, 2.0F, 3.0F};
  CHECK(at.sent() == Sent{});
  at.send(0, Tag{1}, out(x));
  at.recv(0, Tag{1}, in(x)).wait();
  CHECK(at.sent() == Sent{.messages = 1, .bytes = 12});
  at.expose(Tag{1}, in(x)).wait();
  { auto const hold = at.hold(100); }
  at.leave(Tag{1}).wait();
  CHECK(at.sent() == Sent{.messages = 3, .bytes = 112});
}

TEST_CASE("ranks and groups that do not exist are refused", "[transport][unit]") {
  auto endpoints = LocalTransport{}.connect(Group::all_local(2));
  CHECK_THROWS_AS(endpoints[0].send(2, Tag{}, {}), BadArgument);
  CHECK_THROWS_AS(endpoints[0].recv(-1, Tag{}, {}), BadArgument);
  CHECK_THROWS_AS(Group::all_local(0), BadArgument);
  CHECK_THROWS_AS((Group{2, {1, 0}}), BadArgument);
  CHECK_THROWS_AS((Group{2, {2}}), BadArgument);
  CHECK_THROWS_WITH(LocalTransport{}.connect(Group{3, {0, 2}}), Catch::Contains("only 2 of 3 ranks live here"));
  CHECK(Group::all_local(3).local() == std::vector<Rank>{0, 1, 2});
}

}  // namespace local_test
