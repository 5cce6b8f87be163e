// SPDX-License-Identifier: Apache-2.0
// Shared memory within a node and TCP between nodes: the layers of a cluster, with all its ranks in one process.
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <chrono>

using namespace chorale;
using namespace chorale::test;

using Hosts = Layered<SharedMemoryTransport, TcpTransport>;

static_assert(Transport<Hosts>);

TEST_CASE("a ring over both layers has the bits that it has over one, with messages of several frames",
          "[transport][layered]") {
  auto const n     = std::size_t{300'007};
  auto const ring  = [](auto& at, auto& x) { RingAllReduce{}.all_reduce(at, x, Op::sum, Tag{2}); };
  auto const ended = on_ranks<Hosts>(4, n, ring, Hosts{.ranks_per_node = 2});
  auto const plain = on_ranks<SharedMemoryTransport>(4, n, ring);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(ended[rank].error == "");
    CHECK(same_bits(ended[rank].x, plain[rank].x));
  }
}

TEST_CASE("a hierarchical all-reduce runs over shared memory and TCP, step after step", "[transport][layered]") {
  auto const ended = on_ranks<Hosts>(
      4, 20'011,
      [](auto& at, auto& x) {
        for (unsigned step = 0; step < 20; ++step) {
          for (auto& value : x) value = static_cast<float>(at.rank() + static_cast<int>(step));
          HierarchicalAllReduce<>{}.all_reduce(at, x, Op::sum, Tag{step});
          for (auto const value : x)
            if (value != static_cast<float>(6 + 4 * step)) throw Error{"a wrong sum in step " + std::to_string(step)};
        }
      },
      Hosts{.ranks_per_node = 2});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a rank that fails ends all waits of all nodes within a second", "[transport][layered]") {
  auto const begin = std::chrono::steady_clock::now();
  auto const ended = on_ranks<Hosts>(
      4, 5'000,
      [](auto& at, auto& x) {
        for (unsigned step = 0; step < 20; ++step) {
          if (step == 11 && at.rank() == 2) throw Error{"the disk is full."};
          HierarchicalAllReduce<>{}.all_reduce(at, x, Op::max, Tag{step});
        }
      },
      Hosts{.ranks_per_node = 2});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds{1'500});  // with joining
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const& end = ended[static_cast<std::size_t>(rank)];
    CHECK_THAT(end.error, Catch::Contains("the disk is full"));
    if (rank != 2) CHECK(end.lost == 2);
  }
}
