// SPDX-License-Identifier: Apache-2.0
// Algorithms that ask more of a transport than messages: nodes with near and far ranks, or an all-reduce of its own.
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/native.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

/// P ranks as nodes of `L` ranks each: rank r is number r % L on node r / L. Messages are counted on each level.
class Nodes {
 public:
  using pending = LocalEndpoint::pending;

  Nodes(LocalEndpoint& at, int L)
      : at_{&at}, near_{SubEndpoint{at, ranks(at.rank() / L * L, 1, L)}},
        far_{SubEndpoint{at, ranks(at.rank() % L, L, at.size() / L)}} {}

  Rank rank() const { return at_->rank(); }
  int size() const { return at_->size(); }
  pending send(Rank peer, Tag tag, ConstBytes out) { return at_->send(peer, tag, out); }
  pending recv(Rank peer, Tag tag, Bytes in) { return at_->recv(peer, tag, in); }
  CountingEndpoint<SubEndpoint<LocalEndpoint>>& near() { return near_; }
  CountingEndpoint<SubEndpoint<LocalEndpoint>>& far() { return far_; }

 private:
  static std::vector<Rank> ranks(Rank first, int stride, int count) {
    auto all = std::vector<Rank>{};
    for (int i = 0; i < count; ++i) all.push_back(first + i * stride);
    return all;
  }

  LocalEndpoint* at_;
  CountingEndpoint<SubEndpoint<LocalEndpoint>> near_, far_;
};
static_assert(LayeredEndpoint<Nodes> && !LayeredEndpoint<LocalEndpoint>);
static_assert(ResumableReduce<HierarchicalAllReduce<>, Nodes>);
static_assert(!ReduceAlgorithm<HierarchicalAllReduce<>, LocalTransport>);

/// A transport whose own all-reduce adds up in the order of ranks.
class OwnEndpoint : public LocalEndpoint {
 public:
  using LocalEndpoint::LocalEndpoint;
  void all_reduce(Span<float> x, Op op) { ReduceToOne{}.all_reduce(static_cast<LocalEndpoint&>(*this), x, op); }
};
struct OwnTransport {
  using endpoint = OwnEndpoint;
  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }
  std::vector<OwnEndpoint> connect(Group const& group) const {
    auto const state = std::make_shared<local::SharedState>(group.size(), std::chrono::seconds{60});
    auto endpoints   = std::vector<OwnEndpoint>{};
    for (auto const rank : group.local()) endpoints.emplace_back(state, rank);
    return endpoints;
  }
};
static_assert(CollectiveTransport<OwnTransport> && ReduceAlgorithm<NativeAllReduce, OwnTransport>);
static_assert(!ReduceAlgorithm<NativeAllReduce, LocalTransport>);

}  // namespace

TEST_CASE("hierarchical: whole numbers have the same sum over any nodes", "[reduce][hierarchical]") {
  auto const [ranks, local] = GENERATE(std::pair{1, 1}, std::pair{2, 1}, std::pair{4, 2}, std::pair{6, 3},
                                       std::pair{6, 2}, std::pair{8, 4}, std::pair{5, 5});
  auto const n              = GENERATE(as<std::size_t>{}, 0, 1, 5, 10'007, 300'007);
  auto const ended          = on_ranks<LocalTransport>(ranks, n, [&, L = local](auto& at, auto& x) {
    auto nodes = Nodes{at, L};
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(at.rank() + static_cast<int>(i % 1'000));
    HierarchicalAllReduce{}.all_reduce(nodes, x, Op::sum);
    for (std::size_t i = 0; i < n; ++i) {
      auto const P = at.size();
      if (x[i] != static_cast<float>(P * (P - 1) / 2 + P * static_cast<int>(i % 1'000))) throw Error{"a wrong sum."};
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("hierarchical: all ranks have the same bits, in buckets too", "[reduce][hierarchical]") {
  constexpr std::size_t n = 10'007;
  auto const ends         = std::array<std::size_t, 3>{100, 6'001, n};
  auto const ended        = on_ranks<LocalTransport>(8, n, [&](auto& at, auto& x) {
    auto nodes   = Nodes{at, 2};
    auto reducer = BucketedReducer{HierarchicalAllReduce<TreeAllReduce>{}, nodes, ends, x};
    for (std::size_t upto = 0; upto < n; upto += 500) reducer.ready(upto);
    reducer.finish();
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, ended[0].x));
  }
}

TEMPLATE_TEST_CASE("hierarchical: each level carries the bytes that the algorithm says", "[reduce][hierarchical]",
                   HalvingDoublingAllReduce, RingAllReduce, RecursiveDoublingAllReduce) {
  using Far                = TestType;
  auto const [ranks, each] = GENERATE(std::pair{2, 2}, std::pair{2, 1}, std::pair{4, 2}, std::pair{8, 2},
                                      std::pair{8, 4}, std::pair{16, 4}, std::pair{6, 3}, std::pair{12, 3});
  auto const L             = static_cast<std::size_t>(each);
  auto const nodes_n       = ranks / each;
  constexpr std::size_t n  = 20'160;  // all numbers of ranks above divide it
  auto near                = std::vector<Sent>(static_cast<std::size_t>(ranks));
  auto far                 = near;
  auto const ended         = on_ranks<LocalTransport>(ranks, n, [&](auto& at, auto& x) {
    auto nodes = Nodes{at, static_cast<int>(L)};
    HierarchicalAllReduce<Far>{}.all_reduce(nodes, x, Op::sum);
    near[static_cast<std::size_t>(at.rank())] = nodes.near().sent();
    far[static_cast<std::size_t>(at.rank())]  = nodes.far().sent();
  });
  auto most_near = std::size_t{0}, most_far = most_near, most = most_near;
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const i = static_cast<std::size_t>(rank);
    CHECK(ended[i].error == "");
    CHECK(near[i] == Sent{2 * (each - 1), 2 * (L - 1) * n / L * sizeof(float)});  // reduce-scatter, all-gather
    auto const planned = traffic<Far>(rank / each, nodes_n, n / L, sizeof(float));
    CHECK(far[i] == Sent{planned.messages, planned.bytes});
    most_near = std::max(most_near, near[i].bytes);
    most_far  = std::max(most_far, far[i].bytes);
    most      = std::max(most, near[i].bytes + far[i].bytes);
  }
  auto const bytes = n * sizeof(float);
  CHECK(most_far == Far::cost(nodes_n, bytes / L).bytes);
  CHECK(most == most_near + most_far);
  auto const ring_bytes = RingAllReduce::cost(ranks, bytes).bytes;
  CHECK(HierarchicalAllReduce<Far>::cost(ranks, bytes).bytes == ring_bytes);
  if (Far::cost(nodes_n, bytes / L).bytes == RingAllReduce::cost(nodes_n, bytes / L).bytes) CHECK(most == ring_bytes);
}

TEST_CASE("native: the transport's own all-reduce is called", "[reduce][native]") {
  auto const ended =
      on_ranks<OwnTransport>(3, 1'001, [](auto& at, auto& x) { NativeAllReduce{}.all_reduce(at, x, Op::sum); });
  auto const expected = serial_reference(3, 1'001, Op::sum, [](std::size_t) { return 0; });
  for (auto const& rank : ended) CHECK(same_bits(rank.x, expected));
}
