// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"
#include "test/transport/tcp/listening.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <numeric>

using namespace chorale;
using namespace chorale::test;

namespace {

using Threads = Layered<LocalTransport, LocalTransport>;

static_assert(Transport<Threads> && Endpoint<Threads::endpoint::near_endpoint> &&
              Endpoint<Threads::endpoint::far_endpoint>);
static_assert(DirectAccessEndpoint<Threads::endpoint::near_endpoint>);
static_assert(!DirectAccessEndpoint<Threads::endpoint> && !DirectAccessEndpoint<Threads::endpoint::far_endpoint>);

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

}  // namespace

TEST_CASE("every pair of ranks exchanges what was sent, within a node and between nodes", "[transport][layered]") {
  auto const shape = GENERATE(std::array{4, 2}, std::array{6, 3}, std::array{3, 1}, std::array{4, 4});
  auto const ended = on_ranks<Threads>(
      shape[0], 50,
      [](auto& at, auto& x) {
        auto sent = std::vector<typename Threads::endpoint::pending>{};
        for (Rank peer = 0; peer < at.size(); ++peer) sent.push_back(at.send(peer, Tag{1}, out(x)));
        for (Rank peer = 0; peer < at.size(); ++peer) {
          auto got = std::vector<float>(50);
          at.recv(peer, Tag{1}, in(got)).wait();
          if (!same_bits(got, values_of(peer, 50))) throw Error{"rank " + std::to_string(peer) + " sent another"};
        }
        for (auto& pending : sent) pending.wait();
      },
      Threads{.ranks_per_node = shape[1]});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("messages within a node use the near transport, all others the far one", "[transport][layered]") {
  auto endpoints = Threads{.ranks_per_node = 2}.connect(Group::all_local(4));
  auto& at       = endpoints[1];  // node 0, number 1
  CHECK(at.rank() == 1);
  CHECK(at.size() == 4);
  CHECK(at.near().rank() == 1);
  CHECK(at.near().size() == 2);
  CHECK(at.far().rank() == 0);
  CHECK(at.far().size() == 2);
  auto x = std::array{1.0F, 2.0F}, y = std::array{0.0F, 0.0F};
  SECTION("by number") {
    auto sent = at.send(0, Tag{1}, out(x));
    endpoints[0].near().recv(1, Tag{1}, in(y)).wait();  // the near group's rank 1
    CHECK(sent.done());
  }
  SECTION("by node") {
    auto sent = at.send(3, Tag{1}, out(x));
    endpoints[3].far().recv(0, Tag{1}, in(y)).wait();  // node 0, as number 1 like itself
    CHECK(sent.done());
  }
  SECTION("by neither") {
    auto sent = at.send(2, Tag{1}, out(x));
    CHECK_FALSE(endpoints[2].far().recv(0, Tag{1}, in(y)).done());  // rank 0 has sent nothing
    endpoints[2].recv(1, Tag{1}, in(y)).wait();
    CHECK(sent.done());
  }
  CHECK(y == x);
}

TEST_CASE("an all-reduce in each node, then between nodes, then in each node has the sum", "[transport][layered]") {
  auto const ended = on_ranks<Threads>(
      6, 1'000,
      [](auto& at, auto& x) {
        std::iota(x.begin(), x.end(), static_cast<float>(at.rank()));
        for (int step = 0; step < 20; ++step) {
          auto copy       = std::vector<float>(x.begin(), x.end());
          auto const mine = Span<float>{copy};
          DirectAllReduce{}.all_reduce(at.near(), mine, Op::sum, Tag{1});
          RingAllReduce{}.all_reduce(at.far(), mine, Op::sum, Tag{2});
          for (std::size_t i = 0; i < mine.size(); ++i)
            if (mine[i] != static_cast<float>(6 * i + 15)) throw Error{"a wrong sum in step " + std::to_string(step)};
        }
      },
      Threads{.ranks_per_node = 2});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a hierarchical all-reduce runs over it, and again with the same operation", "[transport][layered]") {
  auto const ended = on_ranks<Threads>(
      6, 1'001,
      [](auto& at, auto& x) {
        auto operation = HierarchicalAllReduce<>{}.start(at, x, Op::max, Tag{1});
        operation.finish();
        for (auto& value : x) value = static_cast<float>(at.rank() + 1);
        operation.restart(at, x, Op::sum, Tag{2});
        operation.finish();
      },
      Threads{.ranks_per_node = 2});
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(rank.x == std::vector<float>(1'001, 21.0F));
  }
}

TEST_CASE("a ring over all ranks has the bits that it has over one transport", "[transport][layered]") {
  auto const ring  = [](auto& at, auto& x) { RingAllReduce{}.all_reduce(at, x, Op::sum, Tag{2}); };
  auto const ended = on_ranks<Threads>(6, 1'001, ring, Threads{.ranks_per_node = 3});
  auto const plain = on_ranks<LocalTransport>(6, 1'001, ring);
  for (std::size_t rank = 0; rank < 6; ++rank) {
    CHECK(ended[rank].error == "");
    CHECK(same_bits(ended[rank].x, plain[rank].x));
  }
}

namespace {

/// A transport whose messages move only while their sender looks at them, as bytes in a socket's queue do.
class LazyEndpoint : public ForwardingEndpoint<LocalEndpoint> {
 public:
  class pending {
   public:
    pending() = default;
    pending(LocalEndpoint& at, Rank peer, Tag tag, ConstBytes out) : at_{&at}, peer_{peer}, tag_{tag}, out_{out} {}
    explicit pending(LocalEndpoint::pending received) : inner_{received} {}

    bool done() {
      if (at_ != nullptr && looks_++ == 3) inner_ = std::exchange(at_, nullptr)->send(peer_, tag_, out_);
      return at_ == nullptr && inner_.done();
    }
    void wait() {
      while (!done()) relax();
    }

   private:
    LocalEndpoint* at_ = nullptr;
    Rank peer_         = 0;
    Tag tag_{};
    ConstBytes out_;
    int looks_ = 0;
    LocalEndpoint::pending inner_;
  };

  using ForwardingEndpoint::ForwardingEndpoint;
  pending send(Rank peer, Tag tag, ConstBytes out) { return {at_, peer, tag, out}; }
  pending recv(Rank peer, Tag tag, Bytes in) { return pending{at_.recv(peer, tag, in)}; }
};

struct LazyTransport {
  using endpoint = LazyEndpoint;
  LocalTransport transport{};
  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }
  std::vector<endpoint> connect(Group const& group) const {
    auto endpoints = std::vector<endpoint>{};
    for (auto& at : transport.connect(group)) endpoints.emplace_back(std::move(at));
    return endpoints;
  }
};

}  // namespace

TEST_CASE("while one layer is waited for, the other moves on", "[transport][layered]") {
  auto const ended = on_ranks<Layered<LocalTransport, LazyTransport>>(
      4, 10,
      [](auto& at, auto& x) {
        auto y = std::vector<float>(10);
        if (at.rank() == 0) {                            // waits near for 1, which waits far for 3,
          auto sent = at.far().send(1, Tag{1}, out(x));  // which waits near for 2: for this message
          at.near().recv(1, Tag{2}, in(y)).wait();
          sent.wait();
        } else if (at.rank() == 2) {
          at.far().recv(0, Tag{1}, in(y)).wait();
          at.near().send(1, Tag{3}, out(y)).wait();
        } else if (at.rank() == 3) {
          at.near().recv(0, Tag{3}, in(y)).wait();
          at.far().send(0, Tag{4}, out(y)).wait();
        } else {
          at.far().recv(1, Tag{4}, in(y)).wait();
          at.near().send(0, Tag{2}, out(y)).wait();
        }
        if (!same_bits(y, values_of(0, 10))) throw Error{"another message came round"};
      },
      {.near = {.timeout = std::chrono::seconds{5}}, .far = {}, .ranks_per_node = 2});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a rank that fails is named by all ranks of all nodes, in ranks of the whole group", "[transport][layered]") {
  auto const failed = GENERATE(0, 3);
  auto const begin  = std::chrono::steady_clock::now();
  auto const ended  = on_ranks<Threads>(
      6, 1'000,
      [&](auto& at, auto& x) {
        for (int step = 0; step < 20; ++step) {
          if (step == 11 && at.rank() == failed) throw Error{"the disk is full."};
          DirectAllReduce{}.all_reduce(at.near(), x, Op::max, Tag{1});
          RingAllReduce{}.all_reduce(at.far(), x, Op::max, Tag{2});
        }
      },
      Threads{.ranks_per_node = 2});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{1});
  for (Rank rank = 0; rank < 6; ++rank) {
    auto const& end = ended[static_cast<std::size_t>(rank)];
    CHECK_THAT(end.error, Catch::Contains("the disk is full"));
    if (rank != failed) CHECK(end.lost == failed);
  }
}

TEST_CASE("a loss in one node reaches the ranks of the others", "[transport][layered]") {
  auto const transport = Threads{.near = {.timeout = std::chrono::milliseconds{20}}, .ranks_per_node = 2};
  auto endpoints       = transport.connect(Group::all_local(4));
  auto x               = std::array{1.0F};
  CHECK_THROWS_WITH(
      endpoints[3].near().recv(0, Tag{5}, in(x)).wait(),
      Catch::Contains("in node 1, rank 1 lost rank 0") && Catch::Contains("20 ms") && Catch::Contains("tag 5"));
  auto const named = Catch::Contains("lost rank 3 in step 0: rank 3 lost rank 2 in step 0: in node 1, rank 1 lost ");
  CHECK_THROWS_WITH(endpoints[1].recv(2, Tag{6}, in(x)).wait(), named);
  CHECK_THROWS_WITH(endpoints[0].near().recv(1, Tag{6}, in(x)).wait(), named);  // rank 1 has passed it on
}

TEST_CASE("a wait beside a message of the other layer that never goes ends too", "[transport][layered]") {
  auto const transport = Threads{.ranks_per_node = 2, .timeout = std::chrono::milliseconds{20}};
  auto endpoints       = transport.connect(Group::all_local(4));
  auto x               = std::array{1.0F};
  auto never           = endpoints[1].send(3, Tag{8}, out(x));
  try {
    endpoints[1].recv(0, Tag{9}, in(x)).wait();
    FAIL("it returned");
  } catch (PeerLost const& lost) {
    CHECK(lost.rank() == 0);
    CHECK(lost.fault() == Fault::peer_stalled);
    CHECK_THAT(lost.what(), Catch::Contains("rank 1 waited 20 ms") && Catch::Contains("tag 9"));
  }
  CHECK_THROWS_AS(never.wait(), PeerLost);
}

TEST_CASE("ranks that bring different sizes in one node end the others as well", "[transport][layered]") {
  auto endpoints = Threads{.ranks_per_node = 2}.connect(Group::all_local(4));
  auto x         = std::array{1.0F, 2.0F};
  endpoints[0].send(1, Tag{3}, out(x));
  auto const sizes = Catch::Contains("sent 8 bytes where rank 1 expected 4 bytes");
  CHECK_THROWS_WITH(endpoints[1].recv(0, Tag{3}, in(Span<float>{x}.first(1))).done(), sizes);
  CHECK_THROWS_WITH(endpoints[2].recv(0, Tag{3}, in(x)).wait(), sizes);
}

TEST_CASE("a layered endpoint passes on what it is told, to both layers", "[transport][layered]") {
  auto const transport = Layered<ListeningTransport, ListeningTransport>{};
  auto endpoints       = transport.connect(Group::all_local(1));
  CHECK(told(endpoints[0], *transport.near.heard) == everything);
  CHECK(*transport.far.heard == everything);
  CHECK(endpoints[0].memory().size() == 2 * sizeof(float));
  endpoints[0].near().begin_step(13);
  CHECK(transport.near.heard->back() == "step 13");
  endpoints[0].far().begin_step(14);
  CHECK(transport.far.heard->back() == "step 14");
}

TEST_CASE("nodes that are not full, and ranks that do not exist, are refused", "[transport][layered]") {
  CHECK_THROWS_WITH(Threads{.ranks_per_node = 4}.connect(Group::all_local(6)),
                    Catch::Contains("6 ranks do not fill nodes of 4 ranks"));
  CHECK_THROWS_AS(Threads{.ranks_per_node = -1}.connect(Group::all_local(6)), BadArgument);
  auto endpoints = Threads{.ranks_per_node = 2}.connect(Group::all_local(4));
  CHECK_THROWS_AS(endpoints[0].send(4, Tag{}, {}), BadArgument);
  CHECK_THROWS_AS(endpoints[0].near().recv(2, Tag{}, {}), BadArgument);
  CHECK_THROWS_WITH(endpoints[0].far().recv(2, Tag{}, {}), Catch::Contains("no node 2 in a group of 2"));
}
