// SPDX-License-Identifier: Apache-2.0
// TcpTransport with connections for data between some ranks only: those that an algorithm uses.
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/topology.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <filesystem>
#include <string>
#include <tuple>

using namespace chorale;
using namespace chorale::test;

namespace {

/// Sockets that this process has.
std::size_t sockets() {
  auto n = std::size_t{0};
  for (auto const& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    auto error = std::error_code{};  // the iterator's own is gone soon
    n += std::filesystem::read_symlink(entry.path(), error).string().starts_with("socket:") ? 1 : 0;
  }
  return n;
}

/// How many more there are while so many ranks of this process are connected.
std::size_t sockets_of(int ranks, Topology topology) {
  auto const before    = sockets();
  auto const endpoints = TcpTransport{.topology = topology}.connect(Group::all_local(ranks));
  return sockets() - before;
}

using Algorithms =
    std::tuple<RingAllReduce, TreeAllReduce, DoubleTreeAllReduce, HalvingDoublingAllReduce, RecursiveDoublingAllReduce>;

}  // namespace

TEST_CASE("the links of a schedule are the pairs that talk in it", "[transport][tcp][links]") {
  STATIC_REQUIRE(topology_of<RingAllReduce>().pairs(8) == 8);
  STATIC_REQUIRE(topology_of<HalvingDoublingAllReduce>().pairs(8) == 12);  // a cube
  STATIC_REQUIRE(topology_of<BinomialBroadcast>().pairs(8) == 7);          // a tree
  STATIC_REQUIRE(topology_of<PairwiseAllReduce>().pairs(8) == Topology::of(8));
  STATIC_REQUIRE(topology_for_training<RingAllReduce>().pairs(16) == 16 * 5 / 2);
  CHECK(topology_for_training<RingAllReduce>().pairs(64) == 64 * 7 / 2);  // too many steps for clang
  for (int ranks = 1; ranks <= 17; ++ranks) {
    CHECK(topology_of<RingAllReduce>().text(ranks) == Topology::ring().text(ranks));
    CHECK(Topology::all_pairs().pairs(ranks) == Topology::of(ranks));
  }
  CHECK(Topology::ring().text(8) != topology_of<BinomialBroadcast, RingAllReduce>().text(8));
}

TEMPLATE_LIST_TEST_CASE("an algorithm needs no links but its own, and has the same bits over them",
                        "[transport][tcp][links]", Algorithms) {
  auto const ranks = GENERATE(1, 2, 3, 5, 8, 16);
  auto const body  = [](auto& at, auto& x) { TestType{}.all_reduce(at, x, Op::sum); };
  auto const local = on_ranks<LocalTransport>(ranks, 10'007, body);
  auto const few   = on_ranks(ranks, 10'007, body, TcpTransport{.topology = topology_of<TestType>()});
  for (std::size_t rank = 0; rank < few.size(); ++rank) {
    CHECK(few[rank].error == "");
    CHECK(same_bits(few[rank].x, local[rank].x));
  }
}

TEST_CASE("what training uses works over its links: broadcast, gather, barrier and sum", "[transport][tcp][links]") {
  auto const ranks = GENERATE(2, 7, 16);
  auto const ended = on_ranks(
      ranks, 100,
      [](auto& at, auto& x) {
        broadcast(at, x, 0, Tag{1});
        auto all = std::vector<Rank>(static_cast<std::size_t>(at.size()));
        all_gather(at, Span<Rank const>{std::array{at.rank()}}, Span<Rank>{all}, Tag{2});
        barrier(at, Tag{3});
        RingAllReduce{}.all_reduce(at, x, Op::max, Tag{4});
        for (Rank rank = 0; rank < at.size(); ++rank)
          if (all[static_cast<std::size_t>(rank)] != rank) throw Error{"rank " + std::to_string(rank) + " is missing"};
      },
      TcpTransport{.topology = topology_for_training<RingAllReduce>()});
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, values_of(0, 100)));
  }
}

TEST_CASE("a pair without a link has one socket less at both ends", "[transport][tcp][links]") {
  constexpr int ranks  = 16;
  auto const all       = sockets_of(ranks, Topology::all_pairs());
  auto const in_a_ring = sockets_of(ranks, Topology::ring());
  auto const listeners = std::size_t{ranks};
  CHECK(all == listeners + 4 * Topology::of(ranks));  // a pair has two connections of two ends
  CHECK(in_a_ring == listeners + 2 * Topology::of(ranks) + 2 * ranks);
}

TEST_CASE("to send where there is no link is refused with both ranks and the remedy", "[transport][tcp][links]") {
  auto endpoints = TcpTransport{.topology = Topology::ring()}.connect(Group::all_local(5));
  auto byte      = std::array{std::byte{1}};
  CHECK_THROWS_AS(endpoints[0].send(2, Tag{1}, byte), BadArgument);
  CHECK_THROWS_WITH(endpoints[0].send(2, Tag{1}, byte),
                    Catch::Contains("0 and rank 2 have no connection for data") &&
                        Catch::Contains("Topology::all_pairs(), or topology_of<..>()"));
  CHECK_THROWS_WITH(endpoints[0].recv(2, Tag{1}, byte), Catch::Contains("rank 0 and rank 2 have no connection"));
  CHECK(!endpoints[0].lost(2));  // it is there all the same
  endpoints[0].send(1, Tag{1}, byte).wait();
  endpoints[0].send(0, Tag{1}, byte);  // to itself, too
  auto got = std::array{std::byte{0}};
  endpoints[1].recv(0, Tag{1}, got).wait();
  endpoints[0].recv(0, Tag{1}, byte).wait();
  CHECK(got == byte);
}

TEST_CASE("a rank that fails is named by those that have no link with it, too", "[transport][tcp][links][fault]") {
  auto const ended = on_ranks(
      7, 1'000,
      [](auto& at, auto& x) {
        for (int step = 0; step < 5; ++step) {
          if (at.rank() == 3 && step == 2) throw Error{"a row is not finite."};
          RingAllReduce{}.all_reduce(at, x, Op::max);
        }
      },
      TcpTransport{.topology = topology_of<RingAllReduce>()});
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    if (rank == 3) continue;
    CHECK(ended[rank].lost == 3);
    CHECK_THAT(ended[rank].error, Catch::Contains("a row is not finite"));
  }
}

TEST_CASE("ranks with other links do not fit, and both are told", "[transport][tcp][links][fault]") {
  auto const addresses = free_loopback_addresses(4);
  auto errors          = std::array<std::string, 4>{};
  auto threads         = std::vector<NamedThread>{};
  for (Rank rank = 0; rank < 4; ++rank)
    threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
      auto transport = TcpTransport{.addresses = addresses, .plan = {"dense/kernel f32[784,512]"}};
      if (rank == 2) transport.topology = Topology::ring();
      try {
        transport.connect(Group{4, {rank}});
      } catch (Disagreement const& error) { errors[static_cast<std::size_t>(rank)] = error.what(); }
    });
  threads.clear();
  for (auto const& error : errors)
    CHECK_THAT(error, Catch::Contains("links 4 of 6 pairs") && Catch::Contains("nothing"));
}
