// SPDX-License-Identifier: Apache-2.0
#include "test/support/count_allocations.hpp"
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <tuple>

using namespace chorale;
using namespace chorale::test;

namespace {

/// What a user may write: it can only block.
struct Blocking {
  static constexpr Cost cost(int ranks, std::size_t bytes) { return ReduceToOne::cost(ranks, bytes); }
  template <Endpoint E> void all_reduce(E& at, Span<float> x, Op op) const { ReduceToOne{}.all_reduce(at, x, op); }
};
static_assert(!ResumableReduce<Blocking, LocalEndpoint>);

using Reduces = std::tuple<RingAllReduce, ReduceToOne, DirectAllReduce, Blocking>;

constexpr std::size_t n = 10'007;
constexpr std::array<std::size_t, 6> ends{1, 5, 2'000, 2'001, 7'000, n};

}  // namespace

TEMPLATE_LIST_TEST_CASE("buckets give what one all_reduce of each gives", "[reduce][bucket]", Reduces) {
  auto const ranks    = GENERATE(1, 2, 3, 7);
  auto const whole    = on_ranks<LocalTransport>(ranks, n, [](auto& at, auto& x) {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      auto const begin = i == 0 ? 0 : ends[i - 1];
      TestType{}.all_reduce(at, x.subspan(begin, ends[i] - begin), Op::sum);
    }
  });
  auto const bucketed = on_ranks<LocalTransport>(ranks, n, [](auto& at, auto& x) {
    auto reducer      = BucketedReducer{TestType{}, at, ends, x};
    auto const stride = static_cast<std::size_t>(100 + 37 * at.rank());  // every rank at its own pace
    for (std::size_t upto = 0; upto < n; upto += stride) reducer.ready(upto);
    reducer.finish();
  });
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    CHECK(bucketed[rank].error == "");
    CHECK(same_bits(bucketed[rank].x, whole[rank].x));
  }
}

TEMPLATE_LIST_TEST_CASE("more buckets than may be under way are all reduced, step after step", "[reduce][bucket]",
                        Reduces) {
  auto many = std::vector<std::size_t>(200);
  std::iota(many.begin(), many.end(), 1);
  auto const ended = on_ranks<LocalTransport>(3, many.size(), [&](auto& at, auto& x) {
    auto reducer = BucketedReducer{TestType{}, at, many, x};
    for (int step = 0; step < 400; ++step) {  // 80000 tags: they wrap
      for (auto& value : x) value = static_cast<float>(at.rank() + step);
      reducer.begin();
      reducer.ready(x.size() / 2);
      reducer.finish();
      for (auto const value : x)
        if (value != static_cast<float>(3 * step + 3)) throw Error{"wrong sum in step " + std::to_string(step)};
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_LIST_TEST_CASE("what is reduced before finish() is counted as overlap", "[reduce][bucket]", Reduces) {
  auto hidden      = std::array<Overlap, 2>{};
  auto const ended = on_ranks<LocalTransport>(2, n, [&](auto& at, auto& x) {
    auto reducer = BucketedReducer{TestType{}, at, ends, x};
    spin_until([&] {         // the backward pass of the layers that remain
      reducer.ready(6'999);  // four buckets, not the fifth
      return reducer.overlap().buckets == 4;
    });
    reducer.finish();
    hidden[static_cast<std::size_t>(at.rank())] = reducer.overlap();
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  for (auto const& overlap : hidden) CHECK(overlap == Overlap{.buckets = 4, .bytes = 2'001 * sizeof(float)});
}

TEST_CASE("what is only ready at finish() is no overlap", "[reduce][bucket]") {
  auto hidden = std::array<Overlap, 2>{};
  on_ranks<LocalTransport>(2, n, [&](auto& at, auto& x) {
    auto reducer = BucketedReducer{RingAllReduce{}, at, ends, x};
    reducer.finish();
    hidden[static_cast<std::size_t>(at.rank())] = reducer.overlap();
  });
  for (auto const& overlap : hidden) CHECK(overlap == Overlap{});
}

TEMPLATE_TEST_CASE("after the first step a bucketed reduction allocates nothing", "[reduce][bucket]", RingAllReduce,
                   ReduceToOne, DirectAllReduce) {
  auto allocated   = std::array<int, 3>{-1, -1, -1};
  auto const ended = on_ranks<LocalTransport>(3, n, [&](auto& at, auto& x) {
    auto reducer    = BucketedReducer{TestType{}, at, ends, x};
    auto const step = [&] {
      reducer.begin();
      for (std::size_t upto = 0; upto < n; upto += 500) reducer.ready(upto);
      reducer.finish();
    };
    step();
    auto const before = allocations;
    for (int i = 0; i < 50; ++i) step();
    allocated[static_cast<std::size_t>(at.rank())] = allocations - before;
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  for (auto const count : allocated) CHECK(count == 0);
}

TEST_CASE("buckets must ascend and cover the buffer, and progress only grows", "[reduce][bucket]") {
  auto endpoints  = LocalTransport{}.connect(Group::all_local(1));
  auto buffer     = std::vector<float>(10);
  auto const with = [&](std::vector<std::size_t> bounds) {
    return BucketedReducer{RingAllReduce{}, endpoints[0], Span<std::size_t const>{bounds}, Span<float>{buffer}};
  };
  CHECK_THROWS_AS(with({5, 5, 10}), BadArgument);
  CHECK_THROWS_AS(with({5, 9}), BadArgument);
  auto reducer = with({5, 10});
  reducer.ready(7);
  CHECK(reducer.overlap() == Overlap{.buckets = 1, .bytes = 20});
  CHECK_THROWS_AS(reducer.ready(6), BadArgument);
  CHECK_THROWS_AS(reducer.ready(11), BadArgument);
}

TEST_CASE("the first bucket is cut where a layer ends, if what is in front is not too small", "[reduce][bucket]") {
  auto const all = std::array<std::size_t, 2>{100, 300};
  auto const cut = [&](std::vector<std::size_t> layers, std::size_t least) {
    return with_small_first(all, layers, least);
  };
  using Ends = std::vector<std::size_t>;
  CHECK(cut({300, 250, 60, 20, 0}, 10) == Ends{20, 100, 300});
  CHECK(cut({300, 250, 60, 20, 0}, 21) == Ends{60, 100, 300});
  CHECK(cut({300, 250, 60, 20, 0}, 61) == Ends{100, 300});  // the next layer ends after the bucket
  CHECK(cut({100}, 1) == Ends{100, 300});
  CHECK(cut({}, 1) == Ends{100, 300});
  CHECK(with_small_first({}, all, 1).empty());
  CHECK(with_small_first(std::array<std::size_t, 1>{100'000}, std::array<std::size_t, 2>{8'191, 50'000}) ==
        Ends{50'000, 100'000});  // 32 KiB, if nobody says otherwise
}

TEMPLATE_LIST_TEST_CASE("a small first bucket leaves by itself, and the sums are the same", "[reduce][bucket]",
                        Reduces) {
  constexpr auto plan   = std::array<std::size_t, 2>{9'000, n};
  constexpr auto layers = std::array<std::size_t, 3>{9'000, 5'000, 500};
  auto early            = std::array<std::size_t, 2>{};
  auto const sums       = [&](std::vector<std::size_t> const& of) {
    return on_ranks<LocalTransport>(2, n, [&](auto& at, auto& x) {  // of two addends the order does not matter
      auto reducer = BucketedReducer{TestType{}, at, of, x};
      if (of.size() == 3) spin_until([&] { return reducer.ready(5'000), reducer.overlap().buckets == 1; });
      early[static_cast<std::size_t>(at.rank())] = reducer.overlap().bytes;
      reducer.finish();
    });
  };
  auto const whole = sums({plan.begin(), plan.end()});
  auto const small = sums(with_small_first(plan, layers, 1'000));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(small[rank].error == "");
    CHECK(same_bits(small[rank].x, whole[rank].x));
    CHECK(early[rank] == 5'000 * sizeof(float));
  }
}

TEST_CASE("begin() while buckets are under way is refused", "[reduce][bucket]") {
  auto const ended = on_ranks<LocalTransport>(2, n, [&](auto& at, auto& x) {
    auto reducer = BucketedReducer{RingAllReduce{}, at, ends, x};
    if (at.rank() == 0) {
      reducer.ready(n);
      reducer.begin();
    }
  });
  CHECK_THAT(ended[0].error, Catch::Contains("in the middle of a step"));
}

TEMPLATE_LIST_TEST_CASE("a rank that never brings its buckets is named after the timeout", "[reduce][bucket]",
                        Reduces) {
  auto const ended = on_ranks<LocalTransport>(
      2, n,
      [](auto& at, auto& x) {
        if (at.rank() == 1) BucketedReducer{TestType{}, at, ends, x}.finish();
      },
      LocalTransport{.timeout = std::chrono::milliseconds{20}});
  CHECK(ended[1].lost == 0);
  CHECK_THAT(ended[1].error, Catch::Contains("rank 1 waited 20 ms for it"));
}

TEST_CASE("a rank that fails while others finish their buckets is named", "[reduce][bucket]") {
  auto const ended = on_ranks<LocalTransport>(3, n, [&](auto& at, auto& x) {
    auto reducer = BucketedReducer{DirectAllReduce{}, at, ends, x};
    reducer.ready(2'000);
    if (at.rank() == 2) throw Error{"a row is not finite."};
    reducer.finish();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(ended[rank].lost == 2);
    CHECK_THAT(ended[rank].error, Catch::Contains("a row is not finite"));
  }
}

// A bucket that lies in one shard has empty chunks for the other ranks, and messages of them wait for nobody.
TEST_CASE("a rank that is late has few messages to take, even of uneven buckets", "[reduce][bucket]") {
  constexpr std::size_t buckets = 20, each = 1U << 19, ranks = 4;
  auto where = std::vector<std::size_t>{};
  for (std::size_t i = 1; i <= buckets; ++i) where.push_back(i * each);
  auto const late  = GENERATE(0, 3);
  auto const ready = [](std::atomic<int>& count) { return count.load() == static_cast<int>(ranks) - 1; };
  auto waiting     = std::atomic<int>{0};
  auto const ended = on_ranks<SharedMemoryTransport>(
      static_cast<int>(ranks), buckets * each,
      [&](auto& at, auto& x) {
        for (auto& value : x) value = static_cast<float>(at.rank() + 1);
        auto shards = ShardEnds{x, {}};
        for (std::size_t r = 1; r <= ranks; ++r) shards.ends.push_back(r * x.size() / ranks);
        auto reduce = ReduceScatterOf<RingAllReduce>{RingAllReduce{}};
        reduce.place(shards);
        auto reducer = BucketedReducer{reduce, at, where, x};
        if (at.rank() == late) {
          spin_until([&] { return ready(waiting); });
          std::this_thread::sleep_for(std::chrono::milliseconds{100});  // more likely to fail, not needed to pass
        } else {
          ++waiting;
        }
        reducer.finish();
        auto const mine = share(x.size(), at.rank(), at.size());
        for (auto const value : x.subspan(mine.begin, mine.size()))
          if (value != 10) throw Error{"a wrong sum"};
      },
      SharedMemoryTransport{.timeouts = {.stuck = std::chrono::seconds{20}}});
  for (auto const& rank : ended) CHECK(rank.error == "");
}
