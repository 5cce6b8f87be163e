// SPDX-License-Identifier: Apache-2.0
// Ranks of one process that call different things: every way to differ, over every transport that knows what ranks
// announce, among all ranks and within a sub-group. Between
// processes: agreement_test.cpp.
#include "test/support/slow.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/strategy/mesh/mesh.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/faulty.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace mismatch_threads_test {

using namespace chorale;

namespace {

/// What the deviating rank does where the others call the all-reduce, broadcast or gather of the same name.
enum class Differs { operation, op, element, length, root, order, tag, line, counts, left_out, exchange };

struct Way {
  Differs differs;
  char const* name;
  std::array<char const*, 2> says;  // of each side, in any order
};

constexpr auto ways = std::array{
    Way{Differs::operation, "another operation", {"broadcast of 96 float", "all_reduce (sum) of 96 float"}},
    Way{Differs::op, "another op", {"all_reduce (max) of 96 float", "all_reduce (sum) of 96 float"}},
    Way{Differs::element, "another element type", {"all_reduce (sum) of 96 int32", "all_reduce (sum) of 96 float"}},
    Way{Differs::length, "another length", {"all_reduce (sum) of 60 float", "all_reduce (sum) of 96 float"}},
    Way{Differs::root, "another root", {"of 96 byte from rank 1, tag 5", "broadcast of 96 byte from rank 0, tag 5"}},
    Way{Differs::order, "another order", {"tag 5, at train.cpp:10", "tag 6, at train.cpp:11"}},
    Way{Differs::tag, "another tag", {"tag 69, at train.cpp:10", "tag 5, at train.cpp:10"}},
    Way{Differs::line, "another line", {"tag 5, at train.cpp:12", "tag 5, at train.cpp:10"}},
    Way{Differs::counts, "other counts", {"all_gather of 96 float", "all_gather of 96 float"}},
    Way{Differs::left_out, "a call that is left out", {"barrier of 0 uint32", "all_reduce (sum) of 96 float"}},
    Way{Differs::exchange, "an exchange of another type", {"all_to_all of 48 int32", "all_to_all of 48 float"}},
};

constexpr std::uint32_t line = 10;
constexpr CallSite at_line(std::uint32_t number) { return {"train.cpp", number}; }

/// What one rank had in the end.
struct Ended {
  std::exception_ptr thrown{};
  std::vector<float> x{};  // of the differing operation
  Rank rank    = -1;       // in its group
  bool keeps_x = false;    // no data is touched before it is known

  /// The fault of a Disagreement; -1 for any other error.
  int fault() const {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (Disagreement const& error) { return static_cast<int>(error.fault()); } catch (...) {
    }
    return -1;
  }
  std::string text() const {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (std::exception const& error) { return error.what(); }
    return "nothing was thrown";
  }
};

/// Runs body(at, ended) on every rank, each a thread: of any transport whose ranks can be in one process.
template <Transport T> struct InThreads {
  static constexpr bool lines = true;  // errors name the line of each call

  template <class Body> static std::vector<Ended> run(int ranks, Body body, T const& transport = {}) {
    auto all       = std::vector<Ended>(static_cast<std::size_t>(ranks));
    auto endpoints = transport.connect(Group::all_local(ranks));
    auto threads   = std::vector<NamedThread>{};
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        try {
          body(endpoints[rank], all[rank]);
        } catch (std::exception const& error) {
          all[rank].thrown = std::current_exception();
          fail(endpoints[rank], error.what());
        }
      });
    threads.clear();
    return all;
  }
};

struct Simulation {
  static constexpr bool lines = true;

  template <class Body> static std::vector<Ended> run(int ranks, Body body) {
    auto all       = std::vector<Ended>(static_cast<std::size_t>(ranks));
    auto const run = simulate(ranks, [&](auto& at) { body(at, all[static_cast<std::size_t>(at.rank())]); });
    for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank].thrown = run.ranks[rank].error;
    return all;
  }
};

/// Over a transport between processes, whose ranks look at each other more often than they must.
template <class T> struct Often {
  static constexpr bool lines = false;

  template <class Body> static std::vector<Ended> run(int ranks, Body body) {
    using namespace std::chrono_literals;
    return InThreads<T>::run(
        ranks, body,
        {.timeouts = {.heartbeat = 40ms, .warn_silent = 20s, .dead = 40s, .warn_stuck = 30s, .stuck = 60s}});
  }
};

/// Of one rank more, all but rank 0, which waits for something that is never sent, and the last is the first.
template <class Ranks> struct InSubGroup {
  static constexpr bool lines = Ranks::lines;

  template <class Body> static std::vector<Ended> run(int ranks, Body body) {
    return Ranks::run(ranks + 1, [&](auto& at, Ended& ended) {
      if (at.rank() == 0) return at.recv(1, Tag{1'000}, {}).wait();
      auto group = std::vector<Rank>{};
      for (Rank rank = ranks; rank > 0; --rank) group.push_back(rank);
      auto part = SubEndpoint{at, group};
      body(part, ended);
    });
  }
};

/// Over threads within a node of two ranks, and TCP between nodes.
struct InLayers {
  static constexpr bool lines = false;

  template <class Body> static std::vector<Ended> run(int ranks, Body body) {
    using Layers                  = Layered<LocalTransport, TcpTransport>;
    auto layers                   = Layers{.ranks_per_node = 2};
    layers.far.timeouts.heartbeat = std::chrono::milliseconds{40};
    return InThreads<Layers>::run(ranks, body, layers);
  }
};

using Cube = Mesh<Axis<"data", 2>, Axis<"tensor", 2>, Axis<"stage", 2>>;

/// Of the ranks along an axis of a mesh, in each of its four groups alike; then of all.
template <class Ranks, std::size_t axis> struct Along {
  static constexpr bool lines = Ranks::lines;

  template <class Body> static std::vector<Ended> run(int, Body body) {
    return Ranks::run(Cube::size, [&](auto& at, Ended& ended) {
      auto part = SubEndpoint{at, Cube::along(Cube::names[axis], at.rank())};
      body(part, ended);
      barrier(at, Tag{8}, at_line(30));
    });
  }
};

template <class Reduce> struct By {
  Reduce reduce{};

  /// Calls the operation as the others do, or in another way.
  template <Endpoint E> void call(E& at, Differs way, bool deviates, std::vector<float>& x) const {
    auto const of = [&](auto& values, Op op, Tag tag, std::uint32_t number) {
      using T = typename std::remove_reference_t<decltype(values)>::value_type;
      reduce.all_reduce(at, Span<T>{values}, op, tag, at_line(number));
    };
    auto whole   = std::vector<std::int32_t>(96);
    auto bytes   = std::vector<std::byte>(96);
    auto const P = static_cast<std::size_t>(at.size());
    auto counts  = std::vector<std::size_t>(P, x.size() / P);
    switch (way) {
      case Differs::operation:
        if (deviates) return broadcast(at, Span<float>{x}, 0, Tag{5}, at_line(line));
        return of(x, Op::sum, Tag{5}, line);
      case Differs::op: return of(x, deviates ? Op::max : Op::sum, Tag{5}, line);
      case Differs::element:
        if (deviates) return of(whole, Op::sum, Tag{5}, line);
        return of(x, Op::sum, Tag{5}, line);
      case Differs::length:
        if (deviates) x.resize(60);
        return of(x, Op::sum, Tag{5}, line);
      case Differs::root: return broadcast(at, Span<std::byte>{bytes}, deviates ? 1 : 0, Tag{5}, at_line(line));
      case Differs::order: {
        auto second = x;
        of(x, Op::sum, Tag{deviates ? 6U : 5U}, deviates ? line + 1 : line);
        return of(second, Op::sum, Tag{deviates ? 5U : 6U}, deviates ? line : line + 1);
      }
      case Differs::tag: return of(x, Op::sum, Tag{deviates ? 69U : 5U}, line);  // equal modulo 64
      case Differs::line: return of(x, Op::sum, Tag{5}, deviates ? line + 2 : line);
      case Differs::counts: {
        if (deviates) --counts[0], ++counts[1];
        auto const mine = std::vector<float>(counts[static_cast<std::size_t>(at.rank())]);
        return all_gather(at, Span<float const>{mine}, Span<float>{x}, Span<std::size_t const>{counts}, Tag{5},
                          at_line(line));
      }
      case Differs::left_out:
        if (!deviates) of(x, Op::sum, Tag{5}, line);
        return;
      case Differs::exchange: {
        auto const all  = std::vector<float>(48);
        auto const ints = std::vector<std::int32_t>(48);
        x.resize(48);
        whole.resize(48);
        if (deviates)
          return all_to_all(at, Span<std::int32_t const>{ints}, Span<std::int32_t>{whole}, Tag{5}, at_line(line));
        return all_to_all(at, Span<float const>{all}, Span<float>{x}, Tag{5}, at_line(line));
      }
    }
  }
};

/// A run of one step: a right operation, the differing one, and a barrier, as the next operation of a program would be.
template <class Ranks, class Reduce> double check_cell(int ranks, Way const& way, Rank deviating) {
  auto const since = std::chrono::steady_clock::now();
  auto const all   = Ranks::run(ranks, [&](auto& at, Ended& ended) {
    auto const deviates = at.rank() == deviating;
    auto first          = std::vector<float>(7, 1.0F);
    begin_step(at, 12);
    RingAllReduce{}.all_reduce(at, Span<float>{first}, Op::sum, Tag{4}, at_line(9));
    if (first != std::vector<float>(7, static_cast<float>(ranks))) throw Error{"a wrong sum"};
    ended.rank    = at.rank();
    ended.keeps_x = way.differs < Differs::root || way.differs == Differs::tag || way.differs == Differs::line;
    ended.x.assign(96, static_cast<float>(at.rank() + 1));
    By<Reduce>{}.call(at, way.differs, deviates, ended.x);
    barrier(at, Tag{7}, at_line(20));
  });
  auto const took  = std::chrono::steady_clock::now() - since;
  auto const first = all.front().text();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    INFO(way.name << ", rank " << rank << " of " << ranks << ", rank " << deviating << " deviates");
    CHECK(all[rank].fault() == static_cast<int>(Fault::collective_mismatch));
    auto const side = [&](int i) {  // messages of processes carry no line
      auto const text = std::string{way.says[static_cast<std::size_t>(i)]};
      return Catch::Contains(Ranks::lines ? text : text.substr(0, text.find(", at ")));
    };
    CHECK_THAT(all[rank].text(), Catch::Contains("step 12") && Catch::Contains("operation ") && side(0) && side(1) &&
                                     Catch::Contains("Try: the same calls"));
    CHECK(all[rank].text() == first);  // one cause for all
  }
  CHECK(took < std::chrono::seconds{20});  // a third of the timeout: no wait ran into it
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto const& ended = all[rank];
    if (!ended.keeps_x || (ranks != 2 && ended.rank != deviating)) continue;  // those that agree may be half-way
    INFO(way.name << ", rank " << ended.rank << " of " << ranks << ", rank " << deviating << " deviates");
    CHECK(ended.x == std::vector<float>(ended.x.size(), static_cast<float>(ended.rank + 1)));
  }
  return std::chrono::duration<double>(took).count();
}

template <class Ranks, class... Reduces> int check_all() {
  auto cells = 0;
  for (int const ranks : {2, 3, 4})
    for (auto const& way : ways)
      for (Rank const deviating : {0, ranks - 1}) {
        (..., (check_cell<Ranks, Reduces>(ranks, way, deviating), ++cells));
      }
  return cells;
}

}  // namespace

TEST_CASE("threads that call different things all end with both calls in one sentence", "[faults][mismatch]") {
  auto const cells = check_all<InThreads<LocalTransport>, RingAllReduce, TreeAllReduce, DirectAllReduce>();
  std::cout << "  " << cells << " ways to differ\n";
  CHECK(cells == 3 * 11 * 2 * 3);
}

TEST_CASE("threads behind endpoints that pass on, too", "[faults][mismatch]") {
  CHECK(check_all<InThreads<Counting<LocalTransport>>, RecursiveDoublingAllReduce>() == 3 * 11 * 2);
  CHECK(check_all<InThreads<Faulty<LocalTransport>>, RingAllReduce>() == 3 * 11 * 2);
}

TEST_CASE("ranks of a simulation that call different things all end with both calls in one sentence",
          "[faults][mismatch]") {
  CHECK(check_all<Simulation, RingAllReduce, TreeAllReduce>() == 3 * 11 * 2 * 2);
}

TEST_CASE("ranks of a sub-group that call different things all end with both calls in one sentence",
          "[faults][mismatch]") {
  CHECK(check_all<InSubGroup<InThreads<LocalTransport>>, RingAllReduce, TreeAllReduce>() == 3 * 11 * 2 * 2);
  CHECK(check_all<InSubGroup<Simulation>, RingAllReduce, TreeAllReduce>() == 3 * 11 * 2 * 2);
}

namespace {

/// Every way to differ of a rank along an axis of a mesh, over a kind of ranks.
template <class Ranks, std::size_t... axes> void check_axes(char const* over) {
  auto cells       = 0;
  auto longest     = 0.0;
  auto const check = [&]<std::size_t axis>() {
    for (auto const& way : ways)
      for (Rank const deviating : {0, 1}) {
        INFO("along axis " << Cube::names[axis] << " over " << over);
        longest = std::max(longest, check_cell<Along<Ranks, axis>, RingAllReduce>(2, way, deviating));
        ++cells;
      }
  };
  (check.template operator()<axes>(), ...);
  CHECK(cells == static_cast<int>(sizeof...(axes)) * 11 * 2);
  std::cout << "  " << cells << " ways to differ along axes over " << over << ", the longest " << longest << " s\n";
}

}  // namespace

TEST_CASE("ranks along the axis of a mesh that call different things are all told both", "[faults][mismatch]") {
  check_axes<InThreads<LocalTransport>, 0, 1, 2>("threads");
  check_axes<Simulation, 0, 1, 2>("a simulation");
  check_axes<Often<TcpTransport>, 1>("TCP");
  check_axes<Often<SharedMemoryTransport>, 2>("shared memory");
}

TEST_CASE("ranks along every axis of a mesh, over every transport", "[faults][mismatch]") {
  if (!chorale::test::slow_or_skip("ranks along every axis of a mesh, over every transport")) return;
  check_axes<Often<TcpTransport>, 0, 1, 2>("TCP");
  check_axes<Often<SharedMemoryTransport>, 0, 1, 2>("shared memory");
  check_axes<InLayers, 0, 1>("threads and TCP");  // axes between nodes
}

TEMPLATE_TEST_CASE("ranks of a sub-group between processes, too", "[faults][mismatch]", TcpTransport,
                   SharedMemoryTransport) {
  CHECK(check_all<InSubGroup<Often<TestType>>, RingAllReduce>() == 3 * 11 * 2);
}

namespace {

/// A ring within each half, as often as the half's number says, and sums of all in between.
template <class E> void halves_and_all(E& at, Ended& ended) {
  auto const half = at.rank() % 2;
  auto group      = std::vector<Rank>{};
  for (Rank rank = half; rank < at.size(); rank += 2) group.push_back(rank);
  for (int round = 0; round < 300; ++round) {  // more than are remembered
    auto part = SubEndpoint{at, group};        // a new one of the same group
    for (int again = 0; again <= half; ++again) {
      auto x = std::vector<float>(5, 1.0F);
      RingAllReduce{}.all_reduce(part, Span<float>{x}, Op::sum, Tag{3}, at_line(1));
      if (x != std::vector<float>(5, static_cast<float>(group.size()))) throw Error{"a wrong sum of a half"};
    }
    auto y = std::vector<float>(9, 1.0F);
    TreeAllReduce{}.all_reduce(at, Span<float>{y}, Op::sum, Tag{4}, at_line(2));
    if (y != std::vector<float>(9, static_cast<float>(at.size()))) throw Error{"a wrong sum of all"};
  }
  ended.x = {1.0F};
}

}  // namespace

TEST_CASE("groups that call as often as they like disturb neither each other nor all ranks", "[faults][mismatch]") {
  auto const ranks = GENERATE(4, 5);
  for (auto const &all : {InThreads<LocalTransport>::run(ranks, [](auto& at, Ended& e) { halves_and_all(at, e); }),
                          Simulation::run(ranks, [](auto& at, Ended& e) { halves_and_all(at, e); })})
    for (auto const& rank : all) {
      CHECK(rank.text() == "nothing was thrown");
      CHECK(rank.x.size() == 1);
    }
}

TEST_CASE("two groups of one rank may have operations of one tag under way at once", "[faults][mismatch]") {
  auto const body = [](auto& at, Ended& ended) {  // rank 1 is in both pairs
    auto const me = at.rank();
    auto groups   = std::vector<SubEndpoint<std::remove_reference_t<decltype(at)>>>{};
    if (me <= 1) groups.emplace_back(at, std::vector<Rank>{0, 1});
    if (me >= 1) groups.emplace_back(at, std::vector<Rank>{1, 2});
    auto xs  = std::vector<std::vector<float>>(groups.size(), std::vector<float>(40, static_cast<float>(me)));
    auto ops = std::vector<decltype(RingAllReduce{}.start(groups[0], Span<float>{xs[0]}, Op::sum, Tag{5}))>{};
    for (std::size_t i = 0; i < groups.size(); ++i) {
      auto const number = i == 1 || me == 2 ? 2U : 1U;
      ops.push_back(RingAllReduce{}.start(groups[i], Span<float>{xs[i]}, Op::sum, Tag{5}, at_line(number)));
    }
    for (auto i = ops.size(); i-- > 0;) ops[i].finish();
    ended.x = xs.back();
  };
  for (auto const& all : {InThreads<LocalTransport>::run(3, body), Simulation::run(3, body)}) {
    for (auto const& rank : all) CHECK(rank.text() == "nothing was thrown");
    CHECK(all[0].x == std::vector<float>(40, 1.0F));
    CHECK(all[2].x == std::vector<float>(40, 3.0F));
  }
}

TEST_CASE("a rank that was done before the others disagreed is told in its next call", "[faults][mismatch]") {
  auto x         = std::vector<std::vector<float>>(4, std::vector<float>(8));
  auto endpoints = LocalTransport{}.connect(Group::all_local(4));
  auto ended     = std::vector<Ended>(4);
  {
    auto threads = std::vector<NamedThread>{};
    for (std::size_t rank = 0; rank < 4; ++rank)  // 0 sends to 2 and 1, 2 to 3
      threads.emplace_back("rank", [&, rank] {
        try {
          broadcast(endpoints[rank], Span<float>{x[rank]}, 0, Tag{5}, at_line(rank == 3 ? 2 : 1));
        } catch (...) { ended[rank].thrown = std::current_exception(); }
      });
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    try {
      if (!ended[rank].thrown) barrier(endpoints[rank]);
    } catch (...) { ended[rank].thrown = std::current_exception(); }
    CHECK(ended[rank].fault() == static_cast<int>(Fault::collective_mismatch));
    CHECK_THAT(ended[rank].text(), Catch::Contains("train.cpp:1") && Catch::Contains("train.cpp:2"));
  }
}

TEST_CASE("tags that are equal modulo 64 are tags of their own, and too many operations are an error",
          "[faults][mismatch]") {
  auto const run = [](auto reduce, int operations, std::uint32_t apart) {
    return InThreads<LocalTransport>::run(3, [=](auto& at, Ended& ended) {
      auto xs = std::vector<std::vector<float>>{};
      for (int i = 0; i < operations; ++i) xs.emplace_back(10, static_cast<float>(at.rank() + i));
      auto under_way = std::vector<decltype(reduce.start(at, Span<float>{xs[0]}, Op::sum, Tag{}))>{};
      for (int i = 0; i < operations; ++i)
        under_way.push_back(reduce.start(at, Span<float>{xs[static_cast<std::size_t>(i)]}, Op::sum,
                                         Tag{1 + apart * static_cast<std::uint32_t>(i)}, at_line(1)));
      for (int i = operations; i-- > 0;) under_way[static_cast<std::size_t>(i)].finish();  // the last one first
      for (int i = 0; i < operations; ++i)
        if (xs[static_cast<std::size_t>(i)] != std::vector<float>(10, static_cast<float>(3 + 3 * i)))
          throw Error{"a wrong sum"};
      ended.x = xs[0];
    });
  };
  auto const all_well = [](std::vector<Ended> const& all) {
    for (auto const& rank : all) CHECK(rank.text() == "nothing was thrown");
  };
  all_well(run(RingAllReduce{}, 16, 64));  // of 4 messages each at a time
  all_well(run(RingAllReduce{}, 16, 1U << 20));
  all_well(run(DirectAllReduce{}, 20, 64));
  all_well(run(DirectAllReduce{}, 64, 64));
  for (auto const& rank : run(DirectAllReduce{}, 65, 64))
    CHECK_THAT(rank.text(), Catch::Contains("no more than 64 may be under way"));
  for (std::uint32_t const apart : {1U, 64U})  // as many as there is room for by chance
    for (auto const& rank : run(RingAllReduce{}, 400, apart))
      CHECK_THAT(rank.text(),
                 Catch::Equals("nothing was thrown") || Catch::Contains("no more than 64 may be under way"));
}

TEST_CASE("ranks that send more than may be under way before they receive are told at once", "[faults][mismatch]") {
  auto const ranks = GENERATE(2, 3);
  auto const all   = InThreads<LocalTransport>::run(ranks, [](auto& at, Ended&) {
    auto const x = std::vector<std::byte>(1);
    auto sent    = std::vector<LocalEndpoint::pending>{};
    for (int i = 0; i < 65; ++i) sent.push_back(at.send((at.rank() + 1) % at.size(), Tag{1}, x));
  });
  for (auto const& rank : all)
    CHECK_THAT(rank.text(), Catch::Contains("no more than 64 may be under way") && Catch::Contains("ranks "));
}

TEST_CASE("a rank whose endpoint is gone is lost to those who wait for it at once", "[faults][mismatch]") {
  auto const since = std::chrono::steady_clock::now();
  auto const all   = InThreads<LocalTransport>::run(3, [](auto& at, Ended&) {
    auto x = std::vector<float>(4);
    begin_step(at, 3);
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{1}, at_line(1));
    if (at.rank() == 1) {
      auto const gone = std::move(at);
      return;
    }
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{2}, at_line(2));
  });
  for (std::size_t const rank : {0U, 2U}) {
    INFO(all[rank].text());
    CHECK_THROWS_AS(std::rethrow_exception(all[rank].thrown), PeerLost);
    try {
      std::rethrow_exception(all[rank].thrown);
    } catch (PeerLost const& lost) {
      CHECK(lost.rank() == 1);
      CHECK(lost.fault() == Fault::peer_lost);
    }
    CHECK_THAT(all[rank].text(), Catch::Contains("lost rank 1 in step 3, operation 2, all_reduce (sum) of 4 float, "
                                                 "tag 2, at train.cpp:2: it had ended and left the group"));
  }
  CHECK(std::chrono::steady_clock::now() - since < std::chrono::seconds{20});
}

TEST_CASE("a message that was sent before an endpoint went is received", "[faults][mismatch]") {
  auto endpoints = LocalTransport{}.connect(Group::all_local(2));
  auto const x   = std::vector<std::byte>(8, std::byte{7});
  auto got       = std::vector<std::byte>(8);
  {
    auto gone                        = std::move(endpoints[1]);
    [[maybe_unused]] auto const sent = gone.send(0, Tag{1}, x);
  }
  endpoints[0].recv(1, Tag{1}, got).wait();
  CHECK(got == x);
  CHECK_THROWS_WITH(endpoints[0].recv(1, Tag{1}, got).wait(), Catch::Contains("it had ended and left the group"));
}

TEST_CASE("messages that ranks differ about in length end on both sides with both numbers", "[faults][mismatch]") {
  auto const body = [](auto& at, Ended&) {
    auto x = std::vector<std::byte>(40);
    if (at.rank() == 0) at.send(1, Tag{3}, x).wait();
    else at.recv(0, Tag{3}, Bytes{x}.first(16)).wait();
    barrier(at);
  };
  for (auto const& all : {InThreads<LocalTransport>::run(2, body), Simulation::run(2, body)})
    for (auto const& rank : all) {
      CHECK(rank.fault() == static_cast<int>(Fault::collective_mismatch));
      CHECK_THAT(rank.text(), Catch::Contains("rank 0 sent 40 bytes where rank 1 expected 16 bytes, tag 3"));
    }
}

TEST_CASE("two threads that use one endpoint are told who has it", "[faults][mismatch]") {
  auto endpoints       = LocalTransport{}.connect(Group::all_local(2));
  auto x               = std::vector<std::byte>(8);
  auto refused         = std::string{};
  auto received        = endpoints[0].recv(1, Tag{1}, x);
  auto const in_thread = [&](auto call) {
    refused.clear();
    NamedThread{"intruder", [&] {
                  try {
                    call();
                  } catch (BadArgument const& error) { refused = error.what(); }
                }};
  };
  in_thread([&] { endpoints[0].send(1, Tag{2}, x); });
  CHECK_THAT(refused, Catch::Contains("the endpoint of rank 0 has operations under way of thread ") &&
                          Catch::Contains("(intruder) calls it"));
  in_thread([&] { received.done(); });
  CHECK_THAT(refused, Catch::Contains("(intruder) calls it"));
  in_thread([&] { barrier(endpoints[0]); });
  CHECK_THAT(refused, Catch::Contains("(intruder) calls it"));
  [[maybe_unused]] auto const sent = endpoints[1].send(0, Tag{1}, x);
  received.wait();                                      // the owner goes on
  in_thread([&] { endpoints[0].recv(1, Tag{5}, x); });  // nothing is under way: it is that thread's
  CHECK(refused == "");
}

TEST_CASE("a simulation refuses calls of another thread than the one that it runs in", "[faults][mismatch]") {
  auto endpoints = SimulatedTransport{}.connect(Group::all_local(2));
  auto refused   = std::vector<std::string>{};
  simulate(endpoints, [&](SimulatedEndpoint& at) {
    if (at.rank() == 0)
      NamedThread{"intruder", [&] {
                    for (auto const again : {false, true}) try {
                        if (again) simulate(endpoints, [](auto&) {});
                        else at.send(1, Tag{}, {});
                      } catch (BadArgument const& error) { refused.emplace_back(error.what()); }
                  }};
    barrier(at);
  }).check();
  REQUIRE(refused.size() == 2);
  CHECK_THAT(refused[0], Catch::Contains("ranks run in another thread than thread ") && Catch::Contains("(intruder)"));
  CHECK_THAT(refused[1], Catch::Contains("is in use by thread ") && Catch::Contains("(intruder) calls it"));
}

TEST_CASE("buckets of a hierarchical all-reduce come to their stages in any order", "[faults][mismatch]") {
  using Nodes      = Layered<LocalTransport, LocalTransport>;
  auto const nodes = Nodes{.ranks_per_node = 2};
  auto const all   = InThreads<Nodes>::run(
      4,
      [](auto& at, Ended& ended) {
        ended.x.resize(1'001);
        auto ends = std::vector<std::size_t>{};
        for (std::size_t end = 77; end <= 1'001; end += 77) ends.push_back(end);
        auto reducer = BucketedReducer{HierarchicalAllReduce<>{}, at, ends, Span<float>{ended.x}};
        for (int step = 0; step < 300; ++step) {
          ended.x.assign(1'001, static_cast<float>(at.rank() + step));
          reducer.begin();
          for (auto const end : ends) {
            reducer.ready(end);
            if ((step + at.rank()) % 3 == 0) std::this_thread::yield();  // so that ranks are not in step
          }
          reducer.finish();
          if (ended.x != std::vector<float>(1'001, static_cast<float>(6 + 4 * step))) throw Error{"a wrong sum"};
        }
      },
      nodes);
  for (auto const& rank : all) CHECK(rank.text() == "nothing was thrown");
}

}  // namespace mismatch_threads_test
