// SPDX-License-Identifier: Apache-2.0
// Ranks of one process that call different things, over the transports between processes: every rank ends with a
// Disagreement that names both calls, and none by a limit.
#include "test/support/cases.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/common/forwarding_endpoint.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

/// In what the call of one rank differs from that of the others.
enum class Differs { collective, op, element, length, broadcast_root, reduce_root, order, tag, counts };

/// What each rank calls afterwards, before it closes its endpoint.
enum class Then { barrier, all_reduce, nothing };

struct Difference {
  Differs in;
  char const* odd;  // what a sentence says of the one rank
  char const* others;
};

std::vector<Difference> const differences = {
    {Differs::collective, "broadcast of 60 float", "all_reduce (sum) of 60 float"},
    {Differs::op, "all_reduce (max)", "all_reduce (sum)"},
    {Differs::element, "of 60 int32", "of 60 float"},
    {Differs::length, "of 30 float", "of 60 float"},
    {Differs::broadcast_root, "broadcast of 60 float from rank 1", "broadcast of 60 float from rank 0"},
    {Differs::reduce_root, "reduce (sum) of 60 float to rank 1", "reduce (sum) of 60 float to rank 0"},
    {Differs::order, "tag 2", "tag 1"},
    {Differs::tag, "tag 66", "tag 2"},  // equal modulo 64
    {Differs::counts, "counts", "all_gather of 60 float"},
};

constexpr auto at_line = CallSite{"train.cpp", 2};

template <class E> void call(E& at, Differs in, bool odd) {
  auto values  = std::vector<float>(60, 1.0F);
  auto whole   = std::vector<std::int32_t>(60, 1);
  auto const x = Span<float>{values};
  auto const a = Tag{odd ? 2U : 1U}, b = Tag{odd ? 1U : 2U};
  switch (in) {
    case Differs::collective:
      if (odd) return broadcast(at, x, 0, Tag{2}, at_line);
      return RingAllReduce{}.all_reduce(at, x, Op::sum, Tag{2}, at_line);
    case Differs::op: return RingAllReduce{}.all_reduce(at, x, odd ? Op::max : Op::sum, Tag{2}, at_line);
    case Differs::element:
      if (odd) return RingAllReduce{}.all_reduce(at, Span<std::int32_t>{whole}, Op::sum, Tag{2}, at_line);
      return RingAllReduce{}.all_reduce(at, x, Op::sum, Tag{2}, at_line);
    case Differs::length: return RingAllReduce{}.all_reduce(at, x.first(odd ? 30 : 60), Op::sum, Tag{2}, at_line);
    case Differs::broadcast_root: return broadcast(at, x, odd ? 1 : 0, Tag{2}, at_line);
    case Differs::reduce_root: return reduce(at, x, Op::sum, odd ? 1 : 0, Tag{2}, at_line);
    case Differs::order: return broadcast(at, x, 0, a, at_line), broadcast(at, x, 0, b, at_line);
    case Differs::tag: return broadcast(at, x, at.size() - 1, Tag{odd ? 66U : 2U}, at_line);
    case Differs::counts: {
      auto const ranks = static_cast<std::size_t>(at.size()), here = static_cast<std::size_t>(at.rank());
      auto counts = std::vector<std::size_t>(ranks, 60 / ranks);
      if (odd) ++counts[here], --counts[(here + 1) % counts.size()];
      return all_gather(at, Span<float const>{values}.first(counts[here]), x, counts, Tag{2}, at_line);
    }
  }
}

template <class E> void call(E& at, Then then) {
  auto values = std::vector<float>(60, 1.0F);
  if (then == Then::barrier) barrier(at, Tag{9});
  if (then == Then::all_reduce) RingAllReduce{}.all_reduce(at, Span<float>{values}, Op::sum, Tag{9});
  close(at);
}

/// How one rank ended.
struct End {
  std::optional<Fault> fault{};  // of a Disagreement
  std::string text = "it returned";
};

/// Calls body(at) on each rank, in a thread that destroys the endpoint when the body ends.
template <class T, class Body> std::vector<End> ends_of(int ranks, T const& transport, Body body) {
  auto endpoints = transport.connect(Group::all_local(ranks));
  auto ends      = std::vector<End>(endpoints.size());
  auto threads   = std::vector<NamedThread>{};
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
    threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
      auto at = std::move(endpoints[rank]);
      try {
        body(at);
      } catch (Disagreement const& error) {
        ends[rank] = {error.fault(), error.what()};
      } catch (std::exception const& error) { ends[rank].text = error.what(); }
    });
  threads.clear();
  return ends;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void check_mismatch(std::vector<End> const& ends, Difference const& d) {
  for (auto const& end : ends) {
    CHECK(end.fault == Fault::collective_mismatch);
    CHECK_THAT(end.text, Catch::Contains(d.odd) && Catch::Contains(d.others));
    CHECK(end.text == ends[0].text);
  }
}

/// Ranks look at each other more often than they must, so that all cells take seconds.
template <class T> T often() {
  return {.timeouts = {.heartbeat = 40ms, .warn_silent = 20s, .dead = 40s, .warn_stuck = 30s, .stuck = 60s}};
}

}  // namespace

TEMPLATE_TEST_CASE("each difference on any rank ends all ranks with a mismatch that names both calls",
                   "[faults][mismatch]", TcpTransport, SharedMemoryTransport) {
  auto cells = 0;
  for (auto const ranks : {2, 3, 4})
    for (auto const odd : {0, ranks - 1})
      for (auto const& d : differences)
        for (auto const then : {Then::barrier, Then::all_reduce, Then::nothing}) {
          INFO(d.odd << " on rank " << odd << " of " << ranks << ", then " << static_cast<int>(then));
          auto const begin = std::chrono::steady_clock::now();
          check_mismatch(ends_of(ranks, often<TestType>(),
                                 [&](auto& at) {
                                   call(at, d.in, at.rank() == odd);
                                   call(at, then);
                                 }),
                         d);
          CHECK(seconds_since(begin) < 20);  // not by a limit
          ++cells;
        }
  CHECK(cells == 3 * 2 * 9 * 3);
}

TEMPLATE_TEST_CASE("a broadcast from another root ends on every rank before a value has moved", "[faults][mismatch]",
                   TcpTransport, SharedMemoryTransport) {
  auto const in_group = GENERATE(false, true);
  for (auto const ranks : {2, 3, 4})
    for (auto odd = 0; odd < ranks; ++odd) {
      INFO("rank " << odd << " of " << ranks << (in_group ? ", in a sub-group" : ""));
      auto const begin = std::chrono::steady_clock::now();
      auto kept        = std::vector<std::vector<float>>(static_cast<std::size_t>(ranks));
      check_mismatch(
          ends_of(ranks, often<TestType>(),
                  [&](auto& at) {
                    auto& x  = kept[static_cast<std::size_t>(at.rank())];
                    x        = std::vector<float>(60, static_cast<float>(at.rank()));
                    auto all = std::vector<Rank>{};
                    for (Rank rank = 0; rank < ranks; ++rank) all.push_back(rank);
                    auto part       = SubEndpoint{at, all};
                    auto const root = at.rank() == odd ? 1 : 0;
                    if (in_group) broadcast(part, Span<float>{x}, root, Tag{2}, at_line);
                    else broadcast(at, Span<float>{x}, root, Tag{2}, at_line);
                  }),
          {Differs::broadcast_root, "broadcast of 60 float from rank 1", "broadcast of 60 float from rank 0"});
      for (auto rank = 0; rank < ranks; ++rank)
        CHECK(kept[static_cast<std::size_t>(rank)] == std::vector<float>(60, static_cast<float>(rank)));
      CHECK(seconds_since(begin) < 20);
    }
}

TEMPLATE_TEST_CASE("ranks that wait for one another in different operations are told long before a limit",
                   "[faults][mismatch]", TcpTransport, SharedMemoryTransport) {
  auto const polls = GENERATE(false, true);
  for (auto const ranks : {2, 3}) {  // each rank only receives, from the next one
    INFO(ranks << " ranks, which " << (polls ? "poll" : "wait"));
    auto const begin = std::chrono::steady_clock::now();
    auto const ends  = ends_of(ranks, TestType{}, [&](auto& at) {
      auto const tag = Tag{at.rank() == 1 ? 65U : 1U};
      auto x         = std::vector<float>(60);
      announce(at, {Collective::broadcast, Op::sum, Element::f32, 60, tag, at_line, at.rank()});
      auto pending = at.recv((at.rank() + 1) % ranks, tag, std::as_writable_bytes(Span<float>{x}));
      while (polls && !pending.done()) {}
      pending.wait();
    });
    CHECK(seconds_since(begin) < 10);  // of Timeouts::stuck, 60 s
    for (auto const& end : ends) {
      CHECK(end.fault == Fault::collective_mismatch);
      CHECK_THAT(end.text, Catch::Contains("of 60 float from rank 0") || Catch::Contains("of 60 float from rank 1"));
      CHECK(end.text == ends[0].text);
    }
  }
}

TEMPLATE_TEST_CASE("a rank that waits for one that has left, in another operation, is told both", "[faults][mismatch]",
                   TcpTransport, SharedMemoryTransport) {
  auto left       = std::atomic<bool>{false};
  auto const ends = ends_of(3, TestType{}, [&](auto& at) {  // rank 2 sends to rank 0 only, and leaves
    auto const leaves = at.rank() == 2;
    auto x            = std::vector<float>(60);
    if (!leaves) left.wait(false);
    reduce(at, Span<float>{x}, Op::sum, at.rank() == 1 ? 1 : 0, Tag{2}, at_line);
    if (!leaves) return;
    { auto const gone = std::move(at); }
    left = true;
    left.notify_all();
  });
  CHECK_FALSE(ends[2].fault);
  for (auto const rank : {0U, 1U}) {
    CHECK(ends[rank].fault == Fault::collective_mismatch);
    CHECK_THAT(ends[rank].text, Catch::Contains("reduce (sum) of 60 float to rank 0, tag 2") &&
                                    Catch::Contains("reduce (sum) of 60 float to rank 1, tag 2"));
  }
}

TEMPLATE_TEST_CASE("a rank that leaves out the last call, and closes, is told with the others", "[faults][mismatch]",
                   TcpTransport, SharedMemoryTransport) {
  auto const ends = ends_of(3, often<TestType>(), [&](auto& at) {
    auto x = std::vector<float>(60);
    broadcast(at, Span<float>{x}, 0, Tag{2}, at_line);
    if (at.rank() != 1) reduce(at, Span<float>{x}.first(0), Op::sum, 1, Tag{3}, at_line);  // only rank 1 would wait
    close(at);
  });
  for (auto const& end : ends) {
    CHECK(end.fault == Fault::collective_mismatch);
    CHECK_THAT(end.text, Catch::Contains("ended after operation 1, broadcast of 60 float from rank 0, tag 2") &&
                             Catch::Contains("ended after operation 2, reduce (sum) of 0 float to rank 1, tag 3"));
  }
}

TEMPLATE_TEST_CASE("a difference that no message shows is found when the ranks close", "[faults][mismatch]",
                   TcpTransport, SharedMemoryTransport) {
  auto const calls = GENERATE(3, 100, 1'500);  // a few, and more than are remembered
  auto const ends  = ends_of(3, often<TestType>(), [&](auto& at) {
    announce(at, {Collective::broadcast, Op::sum, Element::f32, 1, Tag{1}, at_line, at.rank() == 1 ? 2 : 0});
    for (int i = 0; i < calls; ++i) barrier(at, Tag{2}, at_line);
    close(at);
  });
  auto const last  = "operation " + std::to_string(calls + 1);
  for (auto const& end : ends) {
    CHECK(end.fault == Fault::collective_mismatch);
    if (calls == 3) CHECK_THAT(end.text, Catch::Contains("from rank 2") && Catch::Contains("from rank 0"));
    if (calls == 1'500)
      CHECK_THAT(end.text, Catch::Contains(last + ", barrier") && Catch::Contains("earlier ones were not the same"));
  }
}

TEMPLATE_TEST_CASE("ranks that close after the same calls return, and the first waits for the last",
                   "[faults][mismatch]", TcpTransport, SharedMemoryTransport) {
  auto const ranks = GENERATE(1, 2, 4);
  auto closed      = std::vector<int>(static_cast<std::size_t>(ranks));
  auto const ends  = ends_of(ranks, TestType{}, [&](auto& at) {
    auto x = std::vector<float>(60, static_cast<float>(at.rank()));
    broadcast(at, Span<float>{x}, ranks - 1, Tag{2});
    closed[static_cast<std::size_t>(at.rank())] = static_cast<int>(x[0]);
    close(at);
    if (closed != std::vector<int>(closed.size(), ranks - 1)) throw Error{"a rank has not closed"};
  });
  for (auto const& end : ends) CHECK(end.text == "it returned");
}
