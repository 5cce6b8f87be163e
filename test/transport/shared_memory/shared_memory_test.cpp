// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace shared_memory_test {

using namespace chorale;
using namespace chorale::test;

namespace {

using Algorithms = std::tuple<RingAllReduce, ReduceToOne, DirectAllReduce>;

static_assert(Transport<SharedMemoryTransport> && DirectAccessEndpoint<SharedMemoryEndpoint>);
static_assert(SharedMemoryTransport::reaches(Memory::host) && !SharedMemoryTransport::reaches(Memory::cuda));

constexpr std::size_t most = 786'433;  // floats; a prime, 3 MiB and one

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

SharedMemoryTransport with_arena(std::size_t floats) { return {.arena = floats * sizeof(float)}; }

/// n floats of this rank's shared memory.
Span<float> shared(SharedMemoryEndpoint const& at, std::size_t n) {
  return Span<float>{reinterpret_cast<float*>(at.memory().data()), at.memory().size() / sizeof(float)}.first(n);
}

/// All-reduces x in the rank's shared memory.
template <class R> void all_reduce_shared(SharedMemoryEndpoint& at, Span<float> x) {
  auto const y = shared(at, x.size());
  std::ranges::copy(x, y.begin());
  R{}.all_reduce(at, y, Op::sum);
  std::ranges::copy(y, x.begin());
}

/// Runs body(rank, x) in a process for each rank, and returns each one's x; empty when the process failed.
template <class Body> std::vector<std::vector<float>> in_processes(int ranks, std::size_t n, Body body) {
  auto const bytes = static_cast<std::size_t>(ranks) * (n + 1) * sizeof(float);
  auto* const all =
      static_cast<float*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(all != MAP_FAILED);
  auto processes = std::vector<pid_t>{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const process = ::fork();
    if (process == 0) {
      ::alarm(60);
      try {
        auto x = values_of(rank, n);
        body(rank, Span<float>{x});
        std::ranges::copy(x, all + static_cast<std::size_t>(rank) * n);
        ::_exit(0);
      } catch (std::exception const& error) {
        log_line(error.what());
        ::_exit(1);
      }
    }
    processes.push_back(process);
  }
  auto results = std::vector<std::vector<float>>{};
  for (auto* x = all; auto const process : processes) {
    auto status = 0;
    ::waitpid(process, &status, 0);
    results.emplace_back(x, status == 0 ? x + n : x);
    x += n;
  }
  ::munmap(all, bytes);
  return results;
}

std::string job() {
  static int number = 0;
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("all_reduce over shared memory has the bits that it has over threads",
                        "[transport][shared_memory][contract]", Algorithms) {
  auto const ranks = GENERATE(1, 2, 3, 4, 7);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 5, 4'099, 65'537);
  auto const local =
      on_ranks<LocalTransport>(ranks, n, [](auto& at, auto& x) { TestType{}.all_reduce(at, x, Op::sum); });
  auto const direct   = std::is_same_v<TestType, DirectAllReduce>;
  auto const in_arena = GENERATE(false, true) || direct;
  auto const ended    = on_ranks(
      ranks, n,
      [&](auto& at, auto& x) {
        for (int again = 0; again < 2; ++again) {
          auto y = std::vector<float>(x.begin(), x.end());
          if (in_arena) all_reduce_shared<TestType>(at, y);
          else if constexpr (!std::is_same_v<TestType, DirectAllReduce>)
            TestType{}.all_reduce(at, Span<float>{y}, Op::sum);
          if (again == 1) std::ranges::copy(y, x.begin());
        }
      },
      with_arena(n));
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, local[0].x));
  }
}

TEMPLATE_LIST_TEST_CASE("all_reduce between processes has the bits that it has between threads",
                        "[transport][shared_memory][contract]", Algorithms) {
  auto const ranks = GENERATE(2, 4);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 10'007, most);
  auto const name  = job();
  auto const local =
      on_ranks<LocalTransport>(ranks, n, [](auto& at, auto& x) { TestType{}.all_reduce(at, x, Op::sum); });
  auto const ended = in_processes(ranks, n, [&](Rank rank, Span<float> x) {
    auto at = SharedMemoryTransport{.name = name, .arena = n * sizeof(float)}.connect(Group{ranks, {rank}});
    if constexpr (std::is_same_v<TestType, DirectAllReduce>) all_reduce_shared<TestType>(at[0], x);
    else TestType{}.all_reduce(at[0], x, Op::sum);
  });
  for (auto const& x : ended) CHECK(same_bits(x, local[0].x));
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);  // nothing is left behind
}

TEST_CASE("every pair of ranks exchanges what was sent, whatever its size and wherever it lies",
          "[transport][shared_memory][contract]") {
  auto const ranks    = GENERATE(1, 2, 3, 7);
  auto const n        = GENERATE(as<std::size_t>{}, 0, 1, 2'047, 2'048, 2'049, 18'433, most);  // a slot has 8 KiB
  auto const in_arena = GENERATE(false, true);
  if (n == most && ranks == 7) return;  // a gigabyte in the sanitizer's shadow
  auto const ended = on_ranks(
      ranks, n,
      [&](auto& at, auto& x) {
        auto const mine = in_arena ? shared(at, n) : x;
        if (in_arena) std::ranges::copy(x, mine.begin());
        auto pendings = std::vector<SharedMemoryEndpoint::pending>{};
        for (Rank peer = 0; peer < at.size(); ++peer)
          pendings.push_back(at.send(peer, Tag{1}, out(mine)));  // itself, too
        for (Rank peer = 0; peer < at.size(); ++peer) {
          auto got = std::vector<float>(n);
          at.recv(peer, Tag{1}, in(got)).wait();
          if (!same_bits(got, values_of(peer, n))) throw Error{"rank " + std::to_string(peer) + " sent something else"};
        }
        for (auto& pending : pendings) pending.wait();
      },
      with_arena(in_arena ? n : 0));
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE(
    "messages with different tags complete in any order, those with one tag in the order sent, over shared memory",
    "[transport][shared_memory][contract]") {
  auto const n     = GENERATE(as<std::size_t>{}, 2, 300'000);  // in the slots; more than the stage holds
  auto const ended = on_ranks<SharedMemoryTransport>(2, 4 * n, [&](auto& at, auto& x) {
    auto const part = [&](std::size_t i) { return x.subspan(i * n, n); };
    if (at.rank() == 0) {
      auto sent = std::array{at.send(1, Tag{5}, out(part(0))), at.send(1, Tag{6}, out(part(1))),
                             at.send(1, Tag{5}, out(part(2))), at.send(1, Tag{7}, out(part(3)))};
      for (auto& pending : sent) pending.wait();
    } else {
      at.recv(0, Tag{7}, in(part(3))).wait();
      auto first = at.recv(0, Tag{5}, in(part(0))), second = at.recv(0, Tag{5}, in(part(2)));
      second.wait();
      first.wait();
      at.recv(0, Tag{6}, in(part(1))).wait();
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 4 * n)));
}

TEST_CASE("both ends of a lane are reused for thousands of messages of many sizes", "[transport][shared_memory]") {
  auto const all   = values_of(0, 40'000);
  auto const ended = on_ranks(
      2, 40'000,
      [&](auto& at, auto& x) {
        auto const size = [](std::size_t i) { return i % 97 == 0 ? std::size_t{20'000} : i % 13; };
        auto sent       = std::vector<SharedMemoryEndpoint::pending>{};
        for (std::size_t i = 0; i < 10'000; ++i) {
          auto const tag = Tag{static_cast<unsigned>(i % 3)};
          if (at.rank() == 0) {
            sent.push_back(at.send(1, tag, out(x.subspan(i, size(i)))));
          } else {
            auto got = std::vector<float>(size(i));
            at.recv(0, tag, in(got)).wait();
            if (!same_bits(got, Span<float const>{all}.subspan(i, size(i)))) throw Error{"not what was sent"};
          }
        }
        for (auto& pending : sent) pending.wait();
      },
      SharedMemoryTransport{.ring = 65'536});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a small message is sent at once, a large one and one in shared memory when they are read",
          "[transport][shared_memory]") {
  auto at = with_arena(100'000).connect(Group::all_local(2));
  auto x = std::vector<float>(100'000, 1.0F), y = x;
  CHECK(SharedMemoryEndpoint::pending{}.done());
  CHECK(at[0].send(1, Tag{1}, out(Span<float>{x}.first(3))).done());
  auto large = at[0].send(1, Tag{2}, out(x)), there = at[0].send(1, Tag{3}, out(shared(at[0], 100'000)));
  CHECK_FALSE(large.done());
  CHECK_FALSE(there.done());
  auto received = at[1].recv(0, Tag{2}, in(y));
  auto moved    = std::move(at[1]);  // operations stay in flight
  for (int i = 0; i < 100; ++i) {    // more than it has segments
    large.done();
    received.done();
  }
  CHECK(received.done());
  CHECK(large.done());
  CHECK(moved.recv(0, Tag{3}, in(y)).done());
  CHECK(there.done());
  CHECK(moved.recv(0, Tag{1}, in(Span<float>{y}.first(3))).done());
}

TEST_CASE("a full lane makes its sender wait until there is room", "[transport][shared_memory]") {
  auto const ended = on_ranks(
      2, 64,
      [](auto& at, auto& x) {
        for (unsigned i = 0; i < 64; ++i)
          if (at.rank() == 0) at.send(1, Tag{i}, out(x.subspan(i, 1))).wait();  // the last waits for rank 1
        if (at.rank() == 1)
          for (unsigned i = 63; i-- > 0;) at.recv(0, Tag{i}, in(x.subspan(i, 1))).wait();
        if (at.rank() == 1) at.recv(0, Tag{63}, in(x.subspan(63, 1))).wait();
      },
      SharedMemoryTransport{});
  CHECK(ended[0].error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 64)));
}

TEST_CASE("a message waits until its operation is announced here, too", "[transport][shared_memory]") {
  auto at        = SharedMemoryTransport{}.connect(Group::all_local(2));
  auto const one = Operation{Collective::all_reduce, Op::sum, Element::f32, 1, Tag{1}};
  auto const two = Operation{Collective::broadcast, Op::sum, Element::f32, 1, Tag{2}};
  auto const x   = std::array{1.0F, 2.0F};
  auto first = std::array{0.0F}, second = first;
  for (auto const& operation : {one, two}) announce(at[0], operation);
  at[0].send(1, Tag{2}, out(Span<float const>{x}.subspan(1)));  // early, and before the other
  at[0].send(1, Tag{1}, out(Span<float const>{x}.first(1)));
  announce(at[1], one);
  at[1].recv(0, Tag{1}, in(first)).wait();
  announce(at[1], two);
  at[1].recv(0, Tag{2}, in(second)).wait();
  CHECK(first[0] == 1.0F);
  CHECK(second[0] == 2.0F);
}

TEST_CASE("ranks that differ in an operation are told both, before any data is touched", "[transport][shared_memory]") {
  auto const swapped = GENERATE(false, true);
  auto const ended   = on_ranks<SharedMemoryTransport>(3, 4, [&](auto& at, auto& x) {
    auto const odd   = at.rank() == 1;
    auto const where = CallSite{"train.cpp", 41};
    auto const a     = Operation{Collective::all_reduce, Op::sum, Element::f32, 400, Tag{7}, where};
    auto const b     = Operation{Collective::all_reduce, Op::sum, Element::f32, 400, Tag{9}, where};
    auto const c     = Operation{Collective::all_reduce, Op::max, Element::f32, 400, Tag{7}, where};
    begin_step(at, 12);
    announce(at, !odd ? a : swapped ? b : c);
    auto const tag = odd && swapped ? Tag{9} : Tag{7};
    auto got       = std::vector<float>(4, -1.0F);
    at.send((at.rank() + 1) % 3, tag, out(x));
    try {
      at.recv((at.rank() + 2) % 3, tag, in(got)).wait();
      at.recv((at.rank() + 2) % 3, tag, in(got)).wait();  // where ranks 2 and 0 agree
    } catch (Disagreement const& error) {
      if (error.fault() != Fault::collective_mismatch) throw Error{"another fault"};
      std::ranges::copy(got, x.begin());
      throw;
    }
  });
  for (auto const& rank : ended)
    CHECK_THAT(rank.error, Catch::Contains("step 12") && Catch::Contains("rank 1 is in operation 1, all_reduce") &&
                               Catch::Contains(swapped ? "(sum) of 400 float, tag 9, at train.cpp:41"
                                                       : "(max) of 400 float, tag 7, at train.cpp:41") &&
                               Catch::Contains("all_reduce (sum) of 400 float, tag 7, at train.cpp:41"));
  CHECK(ended[0].error == ended[1].error);
  CHECK(ended[0].error == ended[2].error);
  CHECK(ended[1].x == std::vector<float>(4, -1.0F));
}

TEST_CASE("messages of another size and windows of another kind are disagreements", "[transport][shared_memory]") {
  auto const kind  = GENERATE(0, 1, 2, 3);
  auto const ended = on_ranks(
      2, 10,
      [&](auto& at, auto& x) {
        auto const odd = at.rank() == 1;
        auto const n   = std::size_t{odd ? 4U : 10U};
        if (kind == 0 && !odd) at.send(1, Tag{3}, out(x)).wait();
        if (kind == 0) at.recv(1 - at.rank(), Tag{3}, in(x.first(4))).wait();
        if (kind == 1) at.expose(Tag{3}, in(shared(at, n))).wait();
        if (kind == 2) at.expose(Tag{odd ? 3U : 67U}, in(shared(at, 4))).wait();
        if (kind == 3) announce(at, {Collective::barrier, Op::sum, Element::f32, n, Tag{3}});
        if (kind == 3) at.expose(Tag{3}, in(shared(at, 4))).wait();
      },
      with_arena(10));
  auto const expected = std::array{"rank 0 sent 40 bytes where rank 1 expected 16 bytes, tag 3", " bytes where rank ",
                                   " exposed tag ", "barrier of 10 float"};
  for (auto const& rank : ended) CHECK_THAT(rank.error, Catch::Contains(expected[static_cast<std::size_t>(kind)]));
  CHECK(ended[0].error == ended[1].error);
}

TEST_CASE("ranks read what others expose, and meet again when all have left, over shared memory",
          "[transport][shared_memory]") {
  auto const ended = on_ranks(
      4, 8,
      [](auto& at, auto&) {
        auto const mine = shared(at, 8);
        for (unsigned round = 0; round < 200; ++round) {
          std::ranges::fill(mine, static_cast<float>(round + static_cast<unsigned>(at.rank())));
          auto const tag = Tag{round % 3 * 64};  // all three share one slot
          at.expose(tag, in(mine)).wait();
          for (Rank peer = 0; peer < 4; ++peer) {
            auto const hold = at.hold(sizeof(float));
            auto const seen = *reinterpret_cast<float const*>(at.peer(peer, tag).data());
            if (seen != static_cast<float>(round + static_cast<unsigned>(peer))) throw Error{"a stale value"};
          }
          at.leave(tag).wait();
        }
      },
      with_arena(8));
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("only shared memory can be exposed", "[transport][shared_memory]") {
  auto at = with_arena(8).connect(Group::all_local(2));
  auto x  = std::array{1.0F};
  CHECK_THROWS_WITH(at[1].expose(Tag{}, in(x)), Catch::Contains("rank 1 exposes 4 bytes at") &&
                                                    Catch::Contains("shared memory of 32 bytes") &&
                                                    Catch::Contains(".arena = bytes"));
  CHECK_THROWS_AS(at[1].expose(Tag{}, Bytes{at[1].memory().data() + 16, 17}), BadArgument);
  CHECK_THROWS_AS(at[1].expose(Tag{}, at[0].memory()), BadArgument);
  CHECK(reinterpret_cast<std::uintptr_t>(at[1].memory().data()) % 4'096 == 0);
}

TEST_CASE("a rank that fails ends every wait, now and later, with its own sentence, over shared memory",
          "[transport][shared_memory]") {
  auto at      = with_arena(1).connect(Group::all_local(3));
  auto x       = std::vector<float>(10'000);
  auto pending = at[0].recv(2, Tag{1}, in(x));
  auto posted  = at[2].send(0, Tag{1}, out(x));
  begin_step(at[1], 5);
  at[1].fail("the disk is full.");
  at[2].fail("something that came of it.");
  auto const named = Catch::EndsWith("step 5: the disk is full.");
  CHECK_THROWS_WITH(pending.wait(), named);
  CHECK_THROWS_WITH(posted.done(), named);
  CHECK_THROWS_WITH(at[2].send(0, Tag{2}, out(x)), named);
  CHECK_THROWS_WITH(at[0].recv(1, Tag{2}, in(x)).wait(), named);
  CHECK_THROWS_WITH(at[0].hold(4), named);
  CHECK_THROWS_WITH(at[0].expose(Tag{0}, at[0].memory()), named);
}

TEST_CASE("a rank that has left is missed by those who wait for it, and by nobody else", "[transport][shared_memory]") {
  auto at = SharedMemoryTransport{}.connect(Group::all_local(3));
  auto x = std::array{1.0F}, y = std::array{0.0F};
  at[2].send(0, Tag{1}, out(x));
  { auto const left = std::move(at[2]); }
  at[0].recv(2, Tag{1}, in(y)).wait();  // it was sent before
  CHECK(y == x);
  at[0].send(1, Tag{1}, out(x));
  at[1].recv(0, Tag{1}, in(y)).wait();
  try {
    at[0].recv(2, Tag{4}, in(y)).wait();
    FAIL("it waits for a rank that has left");
  } catch (PeerLost const& lost) {
    CHECK(lost.loss().rank == 2);
    CHECK(lost.fault() == Fault::peer_lost);
    CHECK_THAT(lost.what(), Catch::Contains("recv, tag 4: it has left the group in good order; rank 0 waited for it"));
  }
}

TEST_CASE("names, rings and groups that cannot be used are refused", "[transport][shared_memory][unit]") {
  auto const one = Group{2, {0}};
  CHECK_THROWS_AS(SharedMemoryTransport{}.connect(one), BadArgument);  // nobody could find it
  CHECK_THROWS_AS(SharedMemoryTransport{.name = "a/b"}.connect(one), BadArgument);
  CHECK_THROWS_AS(SharedMemoryTransport{.ring = 1'000}.connect(Group::all_local(1)), BadArgument);
  CHECK_THROWS_AS(SharedMemoryTransport{}.connect(Group::all_local(257)), BadArgument);
  CHECK_THROWS_AS((SharedMemoryTransport{.name = "a"}.connect(Group{2, {}})), BadArgument);
  auto at = SharedMemoryTransport{}.connect(Group::all_local(2));
  CHECK_THROWS_AS(at[0].send(2, Tag{}, {}), BadArgument);
  CHECK_THROWS_AS(at[0].recv(-1, Tag{}, {}), BadArgument);
}

}  // namespace shared_memory_test
