// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"
#include "test/transport/tcp/listening.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/faulty.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <tuple>

using namespace chorale;
using namespace chorale::test;

namespace {

using Threads = Faulty<LocalTransport>;

static_assert(Transport<Threads> && Transport<Faulty<Counting<LocalTransport>>>);
static_assert(DirectAccessEndpoint<Threads::endpoint>);

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

/// Two ranks whose first, second, .. message of rank 0 suffers that.

std::vector<Threads::endpoint> two_with(InjectedFault what, std::uint64_t message = 0) {
  return Threads{.transport = {.timeout = std::chrono::milliseconds{20}}, .faults = {.scheduled = {{0, message, what}}}}
      .connect(Group::all_local(2));
}

using Algorithms = std::tuple<RingAllReduce, ReduceToOne>;

/// Ten all-reduces over four ranks.
template <class R>
std::vector<RankResult> ten_steps(FaultPlan const& faults,
                                  std::chrono::nanoseconds timeout = std::chrono::seconds{60}) {
  return on_ranks<Threads>(
      4, 1'001,
      [](auto& at, auto& x) {
        for (unsigned step = 0; step < 10; ++step) R{}.all_reduce(at, x, Op::max, Tag{step});
      },
      Threads{.transport = {.timeout = timeout}, .faults = faults});
}

}  // namespace

TEST_CASE("a message that is dropped never arrives, nor what follows it, and its sender does not notice",
          "[transport][faulty]") {
  auto endpoints = two_with(InjectedFault::drop);
  auto x = std::array{1.0F}, y = std::array{2.0F}, z = std::array{0.0F};
  CHECK(endpoints[0].send(1, Tag{1}, out(x)).done());
  CHECK(endpoints[0].send(1, Tag{1}, out(y)).done());
  auto other = endpoints[0].send(1, Tag{2}, out(y));  // another tag is another order
  endpoints[1].recv(0, Tag{2}, in(z)).wait();
  CHECK(z == y);
  CHECK(other.done());
  auto missing = endpoints[1].recv(0, Tag{1}, in(z));
  CHECK_THROWS_WITH(missing.wait(), Catch::Contains("lost rank 0") && Catch::Contains("20 ms"));
}

TEST_CASE("a message that is duplicated arrives twice, also when what was sent has changed", "[transport][faulty]") {
  auto endpoints = two_with(InjectedFault::duplicate);
  auto x = std::array{1.0F, 2.0F}, y = std::array{0.0F, 0.0F};
  auto sent = endpoints[0].send(1, Tag{1}, out(x));
  endpoints[1].recv(0, Tag{1}, in(y)).wait();
  sent.wait();
  CHECK(y == x);
  x = {3.0F, 4.0F};
  endpoints[1].recv(0, Tag{1}, in(y)).wait();
  CHECK(y == std::array{1.0F, 2.0F});
}

TEST_CASE("of a message that is flipped one bit is another, and the sender's memory stays", "[transport][faulty]") {
  auto endpoints   = two_with(InjectedFault::flip, 1);
  auto const seeds = values_of(0, 100);
  auto x = seeds, y = std::vector<float>(100);
  for (int message = 0; message < 2; ++message) {
    endpoints[0].send(1, Tag{1}, out(x));
    endpoints[1].recv(0, Tag{1}, in(y)).wait();
    auto flipped = 0;
    for (std::size_t i = 0; i < 100; ++i)
      flipped += std::popcount(std::bit_cast<std::uint32_t>(x[i]) ^ std::bit_cast<std::uint32_t>(y[i]));
    CHECK(flipped == message);
  }
  CHECK(same_bits(x, seeds));
  auto nothing = two_with(InjectedFault::flip);
  nothing[0].send(1, Tag{1}, {});
  nothing[1].recv(0, Tag{1}, {}).wait();  // has no bit
}

TEST_CASE("a message that is delayed arrives after all, and those behind it after that", "[transport][faulty]") {
  auto endpoints = two_with(InjectedFault::delay);
  auto x = std::array{1.0F}, y = std::array{2.0F}, z = std::array{0.0F};
  auto first  = endpoints[0].send(1, Tag{1}, out(x));
  auto second = endpoints[0].send(1, Tag{2}, out(y));
  auto moved  = std::move(endpoints[0]);
  auto other  = endpoints[1].recv(0, Tag{2}, in(z));
  spin_until([&] { return second.done() || other.done(); });
  CHECK(z == y);
  CHECK_FALSE(first.done());  // it has left, but nobody has read it
  endpoints[1].recv(0, Tag{1}, in(z)).wait();
  CHECK(z == x);
  first.wait();
  second.wait();
}

TEST_CASE("a delayed message leaves while its sender waits for something else", "[transport][faulty]") {
  auto const ended = on_ranks<Threads>(
      2, 4,
      [](auto& at, auto& x) {
        auto const peer = 1 - at.rank();
        at.send(peer, Tag{1}, out(x));  // nobody looks at it again
        auto y = std::vector<float>(4);
        at.recv(peer, Tag{1}, in(y)).wait();
        if (!same_bits(y, values_of(peer, 4))) throw Error{"another message arrived"};
      },
      Threads{.transport = {.timeout = std::chrono::seconds{5}},
              .faults    = {.scheduled = {{0, 0, InjectedFault::delay}, {1, 0, InjectedFault::delay}}}});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a rank that is cut is lost to all, and so are all to it", "[transport][faulty]") {
  auto endpoints = two_with(InjectedFault::cut, 1);
  auto x         = std::array{1.0F};
  auto sent      = endpoints[0].send(1, Tag{1}, out(x));
  auto pending   = endpoints[0].recv(1, Tag{3}, in(x));
  try {
    endpoints[0].send(1, Tag{2}, out(x));
    FAIL("it returned");
  } catch (PeerLost const& lost) {
    CHECK(lost.rank() == 1);
    CHECK(lost.fault() == Fault::peer_lost);
    CHECK_THAT(lost.what(), Catch::Contains("the connection was cut at message 1 of rank 0"));
  }
  auto const cut = Catch::Contains("cut at message 1 of rank 0");
  CHECK_THROWS_WITH(sent.done(), cut);
  CHECK_THROWS_WITH(pending.wait(), cut);
  CHECK_THROWS_WITH(endpoints[0].send(1, Tag{4}, out(x)), cut);
  CHECK_THROWS_WITH(endpoints[0].expose(Tag{4}, in(x)), cut);
  CHECK_THROWS_WITH(endpoints[1].recv(0, Tag{4}, in(x)).wait(), cut && Catch::Contains("rank 1 lost rank 0"));
}

TEMPLATE_LIST_TEST_CASE("an all-reduce over delays has the bits that it has without", "[transport][faulty]",
                        Algorithms) {
  auto const late =
      ten_steps<TestType>({.seed = 3, .rates = {.delay = 0.2F}, .longest = std::chrono::microseconds{300}});
  auto const plain = ten_steps<TestType>({});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(late[rank].error == "");
    CHECK(same_bits(late[rank].x, plain[rank].x));
  }
}

TEMPLATE_LIST_TEST_CASE("an all-reduce ends right or throws before its deadline, whatever is lost",
                        "[transport][faulty]", Algorithms) {
  auto const plain = ten_steps<TestType>({});
  auto const seed  = GENERATE(range(1U, 6U));
  auto const begin = std::chrono::steady_clock::now();
  auto const ended = ten_steps<TestType>(
      {.seed = seed, .rates = {.delay = 0.05F, .drop = 0.02F, .cut = 0.01F}, .longest = std::chrono::microseconds{300}},
      std::chrono::milliseconds{300});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds{1'300});
  auto lost = 0;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    lost += ended[rank].was_lost ? 1 : 0;
    CHECK((ended[rank].was_lost || (ended[rank].error == "" && same_bits(ended[rank].x, plain[rank].x))));
  }
  if (seed == 1) CHECK(lost > 0);  // else nothing was tried
}

TEST_CASE("the same seed has the same faults, and another has others", "[transport][faulty]") {
  auto const run = [](std::uint64_t seed) {
    auto const all = FaultRates{.delay = 0.1F, .drop = 0.1F, .flip = 0.1F, .duplicate = 0.1F};
    auto endpoints = Threads{.faults = {.seed = seed, .rates = all, .longest = {}}}.connect(Group::all_local(1));
    for (unsigned i = 0; i < 30; ++i) { endpoints[0].send(0, Tag{i}, {}); }
    return endpoints[0].injected();
  };
  auto const once = run(1);
  CHECK(once == run(1));
  CHECK(once != run(2));
  CHECK(once.size() > 4);
  CHECK(once.size() < 22);
  for (auto const what : {InjectedFault::delay, InjectedFault::drop, InjectedFault::flip, InjectedFault::duplicate})
    CHECK(std::any_of(once.begin(), once.end(), [&](FaultRecord const& h) { return h.what == what; }));
}

TEST_CASE("chances are what they say", "[transport][faulty]") {
  auto const faults = FaultPlan{.seed = 5, .rates = {.delay = 0.1F, .drop = 0.2F, .cut = 0.3F}};
  auto counts       = std::array<int, 5>{};
  for (std::uint64_t message = 0; message < 10'000; ++message)
    if (auto const what = faults.of(2, message)) ++counts[static_cast<std::size_t>(*what)];
  CHECK(std::abs(counts[0] - 1'000) < 150);  // five standard deviations
  CHECK(std::abs(counts[1] - 2'000) < 200);
  CHECK(counts[2] + counts[3] == 0);
  CHECK(std::abs(counts[4] - 3'000) < 230);
  auto const too_many = Threads{.faults = {.rates = {.drop = 0.6F, .cut = 0.6F}}};
  CHECK_THROWS_WITH(too_many.connect(Group::all_local(1)), Catch::Contains("add up to 1.2"));
  CHECK_THROWS_AS((Threads{.faults = {.rates = {.drop = -0.1F}}}.connect(Group::all_local(1))), BadArgument);
}

TEST_CASE("a faulty endpoint passes on what it is told", "[transport][faulty]") {
  auto const transport = Faulty<ListeningTransport>{};
  auto endpoints       = transport.connect(Group::all_local(1));
  CHECK(told(endpoints[0], *transport.transport.heard) == everything);
  CHECK(endpoints[0].memory().size() == 2 * sizeof(float));
}
