// SPDX-License-Identifier: Apache-2.0
// What every ReduceAlgorithm promises, over every transport that it can run over. A new policy adds one line.
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <tuple>

using namespace chorale;
using namespace chorale::test;

namespace {

template <class R, class T>
struct Over {
  static_assert(ReduceAlgorithm<R, T> && ReduceAlgorithm<R, Counting<T>>);
  static_assert(ResumableReduce<R, typename T::endpoint>);
  using reduce    = R;
  using transport = T;
};

using Cases = std::tuple<Over<RingAllReduce, LocalTransport>,
                         Over<ReduceToOne, LocalTransport>,
                         Over<DirectAllReduce, LocalTransport>>;

/// The rank whose value of element i comes first: for a ring, that of the chunk's number.
template <class R>
Rank first_rank(int ranks, std::size_t n, std::size_t i) {
  if constexpr (!std::is_same_v<R, RingAllReduce>) return 0;
  Rank chunk = 0;
  while (share(n, chunk, ranks).end <= i) ++chunk;
  return chunk;
}

template <class R>
std::vector<float> reference(int ranks, std::size_t n, Op op) {
  return serial_reference(ranks, n, op, [&](std::size_t i) { return first_rank<R>(ranks, n, i); });
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("all_reduce leaves the sum in its documented order, the same bits on every rank",
                        "[reduce][contract]", Cases) {
  auto const ranks = GENERATE(1, 2, 3, 4, 7, 8);
  auto const n     = GENERATE(as<std::size_t>{}, 1, 5, 1'344, 10'007);   // fewer than ranks, odd, divisible, prime
  auto const ended = on_ranks<typename TestType::transport>(ranks, n, [](auto& at, auto& x) {
    typename TestType::reduce{}.all_reduce(at, x, Op::sum);
  });
  auto const expected = reference<typename TestType::reduce>(ranks, n, Op::sum);
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, expected));
  }
}

TEMPLATE_LIST_TEST_CASE("all_reduce sends what its cost says", "[reduce][contract]", Cases) {
  using reduce     = typename TestType::reduce;
  auto const ranks = GENERATE(1, 2, 3, 4, 7, 8);
  auto const n     = std::size_t{1'344};                                 // divisible by every count above
  auto const ended = on_ranks<Counting<typename TestType::transport>>(ranks, n, [](auto& at, auto& x) {
    reduce{}.all_reduce(at, x, Op::sum);
  });
  auto const cost = reduce::cost(ranks, n * sizeof(float));
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    if constexpr (std::is_same_v<reduce, ReduceToOne>) {                 // the root is the busiest
      CHECK(ended[rank].cost.bytes == (rank == 0 ? cost.bytes : n * sizeof(float)));
      CHECK(ended[rank].cost.steps == (rank == 0 ? ranks - 1 : 1));
    } else {
      CHECK(ended[rank].cost == cost);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("min, max and product are reduced as sum is", "[reduce][contract]", Cases) {
  auto const op       = GENERATE(Op::min, Op::max, Op::product);
  auto const ranks    = GENERATE(2, 3, 7);
  auto const n        = std::size_t{1'001};
  auto const expected = reference<typename TestType::reduce>(ranks, n, op);
  auto const ended    = on_ranks<typename TestType::transport>(ranks, n, [&](auto& at, auto& x) {
    typename TestType::reduce{}.all_reduce(at, x, op);
  });
  for (auto const& rank : ended) CHECK(same_bits(rank.x, expected));
}

TEMPLATE_LIST_TEST_CASE("a NaN on one rank is a NaN on all, under every operation", "[reduce][contract]", Cases) {
  auto const op    = GENERATE(Op::sum, Op::min, Op::max, Op::product);
  auto const ended = on_ranks<typename TestType::transport>(3, 6, [&](auto& at, auto& x) {
    x[static_cast<std::size_t>(2 * at.rank() + 1)] = std::nanf("");
    typename TestType::reduce{}.all_reduce(at, x, op);
  });
  for (auto const& rank : ended)
    for (std::size_t i = 0; i < 6; ++i) CHECK(std::isnan(rank.x[i]) == (i % 2 == 1));
}

TEMPLATE_LIST_TEST_CASE("many steps with one tag do not mix", "[reduce][contract]", Cases) {
  auto const ranks = GENERATE(2, 4);
  auto const ended = on_ranks<typename TestType::transport>(ranks, 64, [](auto& at, auto& x) {
    for (int step = 0; step < 300; ++step) {
      for (auto& value : x) value = static_cast<float>(step % 7);
      typename TestType::reduce{}.all_reduce(at, x, Op::sum);
      for (auto const value : x)
        if (value != static_cast<float>(step % 7 * at.size())) throw Error{"wrong sum in step " + std::to_string(step)};
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_LIST_TEST_CASE("operations in flight do not block one another, whichever is asked first",
                        "[reduce][contract]", Cases) {
  constexpr std::size_t operations = 5, n = 501;
  auto const ranks = GENERATE(2, 3, 8);
  auto const ended = on_ranks<typename TestType::transport>(ranks, operations * n, [&](auto& at, auto& x) {
    auto const reduce = typename TestType::reduce{};
    auto flying       = std::array<decltype(reduce.start(at, x, Op::sum, Tag{})), operations>{};
    for (unsigned i = 0; i < operations; ++i) flying[i] = reduce.start(at, x.subspan(i * n, n), Op::sum, Tag{3 * i});
    auto const odd = at.rank() % 2 == 1;                                 // odd ranks want the last first
    for (std::size_t done = 0; done < operations; ++done) {
      auto const wanted = odd ? operations - 1 - done : done;
      spin_until([&] {
        for (auto& other : flying) other.poll();
        return flying[wanted].poll();
      });
    }
  });
  auto const one_by_one = on_ranks<typename TestType::transport>(ranks, operations * n, [](auto& at, auto& x) {
    for (std::size_t i = 0; i < operations; ++i)
      typename TestType::reduce{}.all_reduce(at, x.subspan(i * n, n), Op::sum);
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, one_by_one[0].x));
  }
}

TEMPLATE_LIST_TEST_CASE("a rank that fails in mid-operation is named by all others within a second",
                        "[reduce][contract]", Cases) {
  auto const ranks  = GENERATE(2, 4, 7);
  auto const failed = GENERATE(0, 1);
  auto const begin  = std::chrono::steady_clock::now();
  auto const ended  = on_ranks<typename TestType::transport>(ranks, 10'007, [&](auto& at, auto& x) {
    for (int step = 0; step < 20; ++step) {
      if (step == 11 && at.rank() == failed) {
        auto flying = typename TestType::reduce{}.start(at, x, Op::sum, Tag{});
        flying.poll();
        throw Error{"the disk is full."};
      }
      typename TestType::reduce{}.all_reduce(at, x, Op::sum);
    }
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{1});
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const& end = ended[static_cast<std::size_t>(rank)];
    CHECK_THAT(end.error, Catch::Contains("the disk is full"));
    CHECK(end.was_lost == (rank != failed));
    if (rank != failed) CHECK(end.lost == failed);
  }
}

TEMPLATE_LIST_TEST_CASE("a rank that stays away is named after the timeout", "[reduce][contract]", Cases) {
  auto const ended = on_ranks<typename TestType::transport>(
      2, 100,
      [](auto& at, auto& x) {
        if (at.rank() == 0) typename TestType::reduce{}.all_reduce(at, x, Op::sum, Tag{42});
      },
      typename TestType::transport{.timeout = std::chrono::milliseconds{20}});
  CHECK(ended[0].lost == 1);
  CHECK_THAT(ended[0].error, Catch::Contains("rank 0 waited 20 ms") && Catch::Contains("lost rank 1") &&
                                 Catch::Contains("tag 42"));
  CHECK(ended[1].error == "");
}

TEMPLATE_LIST_TEST_CASE("ranks that bring different sizes get an error with both", "[reduce][contract]", Cases) {
  auto const ended = on_ranks<typename TestType::transport>(2, 100, [](auto& at, auto& x) {
    typename TestType::reduce{}.all_reduce(at, x.first(at.rank() == 0 ? 100 : 60), Op::sum, Tag{9});
  });
  for (auto const& rank : ended) {
    auto const ring = std::is_same_v<typename TestType::reduce, RingAllReduce>;      // sends halves
    CHECK_THAT(rank.error, Catch::Contains(ring ? "200 bytes" : "400 bytes") &&
                               Catch::Contains(ring ? "120 bytes" : "240 bytes") && Catch::Contains("tag 9") &&
                               Catch::Contains("rank 0") && Catch::Contains("rank 1"));
  }
}
