// SPDX-License-Identifier: Apache-2.0
// All-reduces in shared memory of what does not lie in the arena.
#include "test/support/cases.hpp"

#include <chorale/reduce/auto.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/copied.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

#include <cstdint>

using namespace chorale;
using namespace chorale::test;

static_assert(ReduceAlgorithm<CopiedAllReduce, SharedMemoryTransport> && MeetingEndpoint<SharedMemoryEndpoint>);
static_assert(!ReduceAlgorithm<CopiedAllReduce, LocalTransport>);

namespace {

constexpr std::size_t half = shared_memory::SegmentLayout::copies / 2 / sizeof(float);  // elements of one part
std::vector<std::size_t> const counts = {0, 1, 5, 1'024, 1'025, 10'007, half, half + 1, 2 * half, 3 * half + 17, 3};

/// All-reduces of each count in turn, several times: [rank] all results behind one another.
template <class R, class T> std::vector<std::vector<float>> results(int ranks, Op op, T const& transport) {
  auto endpoints = transport.connect(Group::all_local(ranks));
  auto all       = std::vector<std::vector<float>>(endpoints.size());
  auto errors    = std::vector<std::string>(endpoints.size());
  {
    auto threads = std::vector<NamedThread>{};
    for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        try {
          for (int round = 0; round < 3; ++round)
            for (auto const n : counts) {
              auto x = values_of(static_cast<Rank>(rank) + round, n);
              R{}.all_reduce(endpoints[rank], Span<float>{x}, op, Tag{7});
              all[rank].insert(all[rank].end(), x.begin(), x.end());
            }
        } catch (std::exception const& error) {
          errors[rank] = error.what();
          fail(endpoints[rank], errors[rank]);
        }
      });
  }
  for (auto const& error : errors) CHECK(error == "");
  return all;
}

}  // namespace

TEST_CASE("memory of a rank's own is reduced through copies with the bits of a reduce in place",
          "[reduce][shared_memory][copied]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 7);
  auto const op    = GENERATE(Op::sum, Op::min, Op::max, Op::product);
  INFO(ranks << " ranks, " << name(op));
  auto const in_place = results<DirectAllReduce>(ranks, op, LocalTransport{});
  auto const copied   = results<CopiedAllReduce>(ranks, op, SharedMemoryTransport{});
  for (auto const& rank : copied) CHECK(same_bits(rank, in_place[0]));
}

TEST_CASE("ranks that reduce other things through copies are told so", "[reduce][shared_memory][copied]") {
  auto const wrong = GENERATE(0, 1, 2);  // operation, length, a barrier
  auto const ended = on_ranks<SharedMemoryTransport>(3, 10'000, [&](auto& at, auto& x) {
    auto const odd = at.rank() == 1;
    CopiedAllReduce{}.all_reduce(at, x, Op::sum, Tag{1}, {"a.cpp", 1});
    if (odd && wrong == 2) barrier(at, Tag{1}, {"a.cpp", 2});
    else
      CopiedAllReduce{}.all_reduce(at, odd && wrong == 1 ? x.first(9'999) : x, odd && wrong == 0 ? Op::max : Op::sum,
                                   Tag{1}, {"a.cpp", 2});
  });
  for (auto const& rank : ended) {
    CHECK_THAT(rank.error, Catch::Contains("all_reduce (sum) of 10000 float, tag 1, at a.cpp:2"));
    CHECK_THAT(rank.error, Catch::Contains(wrong == 0   ? "all_reduce (max) of 10000 float"
                                           : wrong == 1 ? "all_reduce (sum) of 9999 float"
                                                        : "barrier"));
  }
}

TEST_CASE("auto: over shared memory it reduces in place where it can, and what lies elsewhere as well",
          "[reduce][auto][shared_memory]") {
  constexpr std::size_t n = 1'000;
  auto const arena        = GENERATE(as<std::size_t>{}, 0, 4'000, std::size_t{16} << 20);  // bytes
  auto endpoints          = Counting<SharedMemoryTransport>{{.arena = arena}}.connect(Group::all_local(3));
  auto errors             = std::vector<std::string>(endpoints.size());
  {
    auto const reduce = AutoAllReduce{};
    auto threads      = std::vector<NamedThread>{};
    for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        auto& at = endpoints[rank];
        try {
          auto own           = std::vector<float>(n, static_cast<float>(rank));
          auto const reduced = [&](Span<float> x) {
            auto const before = at.sent().messages;
            reduce.all_reduce(at, x, Op::sum);
            for (auto const value : x)
              if (value != 3) throw Error{"a sum is " + std::to_string(value) + "."};
            return at.sent().messages - before;
          };
          static_cast<void>(reduce.table(at));
          if (reduced(own) == 0) throw Error{"memory of its own was not sent."};
          if (arena < n * sizeof(float)) return;
          auto const shared = Span<float>{reinterpret_cast<float*>(at.memory().data()), n};
          std::ranges::fill(shared, static_cast<float>(rank));
          if (auto const cost = reduced(shared); cost != 2)
            throw Error{"what lies in the arena took " + std::to_string(cost) + " steps."};
        } catch (std::exception const& error) {
          errors[rank] = error.what();
          fail(at, errors[rank]);
        }
      });
  }
  for (auto const& error : errors) CHECK(error == "");
}
