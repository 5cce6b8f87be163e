// SPDX-License-Identifier: Apache-2.0
// Reductions that send only part of what there is: the largest elements, or the rows that were touched.
#include "test/support/count_allocations.hpp"
#include "test/support/on_ranks.hpp"

#include <chorale/core/pieces.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/collectives/sparse_rows.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/reduce/top_k.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>
#include <gsl/util>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

using namespace chorale;
using namespace chorale::test;

static_assert(ReduceAlgorithm<TopK<10>, LocalTransport> && ResumableReduce<TopK<10>, LocalEndpoint>);

TEMPLATE_TEST_CASE("TopK gives every rank the sum of the largest elements, and sends what its cost says",
                   "[reduce][top_k]", float, bf16) {
  using Top        = TopK<10, TestType>;
  auto const ranks = GENERATE(1, 2, 3, 7);
  auto const ended = on_ranks<Counting<LocalTransport>>(ranks, 1'000, [](auto& at, auto& x) {
    for (std::size_t i = 0; i < 1'000; ++i)  // 10 large ones, elsewhere on each rank
      x[i] = i % 100 == static_cast<std::size_t>(at.rank()) ? 100.0F + static_cast<float>(i) : 0.25F;
    Top{}.all_reduce(at, x, Op::sum);
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(rank.cost.bytes == static_cast<std::size_t>(ranks - 1) * 10 * (4 + sizeof(TestType)));
    CHECK(rank.cost.bytes == Top::cost(ranks, 4'000).bytes);
    for (std::size_t i = 0; i < 1'000; ++i)
      REQUIRE(rank.x[i] == (i % 100 < static_cast<std::size_t>(ranks)
                                ? static_cast<float>(TestType{100.0F + static_cast<float>(i)})
                                : 0.0F));
  }
}

TEMPLATE_TEST_CASE("what TopK does not send it keeps: sums sent and residuals are the gradients", "[reduce][top_k]",
                   float, bf16) {
  constexpr int steps     = 50;
  constexpr std::size_t n = 500;
  auto const ranks        = GENERATE(1, 3);
  auto residuals          = std::vector<std::vector<float>>(static_cast<std::size_t>(ranks));
  auto const grad         = [](Rank rank, int step, std::size_t i) {  // multiples of 1/64: float sums are exact
    return std::floor(64 * Random{5, static_cast<std::uint64_t>(rank * 1000 + step)}.uniform(i, -1.0F, 1.0F)) / 64;
  };
  auto const ended = on_ranks<LocalTransport>(ranks, n, [&](auto& at, auto& sent) {
    auto operation = TopKOperation<LocalEndpoint, 20, TestType>{};
    auto x         = std::vector<float>(n);
    std::fill(sent.begin(), sent.end(), 0.0F);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < n; ++i) x[i] = grad(at.rank(), step, i);
      operation.restart(at, x, Op::sum, Tag{1});
      operation.finish();
      for (std::size_t i = 0; i < n; ++i) sent[i] += x[i];
    }
    auto const kept = operation.residual();
    residuals[static_cast<std::size_t>(at.rank())].assign(kept.begin(), kept.end());
  });
  for (auto const& rank : ended) CHECK(same_bits(rank.x, ended[0].x));
  for (std::size_t i = 0; i < n; ++i) {
    auto all = 0.0F, kept = 0.0F;
    for (Rank rank = 0; rank < ranks; ++rank) {
      kept += residuals[static_cast<std::size_t>(rank)][i];
      for (int step = 0; step < steps; ++step) all += grad(rank, step, i);
    }
    REQUIRE(ended[0].x[i] + kept == all);
  }
}

namespace {

/// The sums of steps [begin, end) of a run, one after the other, and what each rank has left out in the end.
struct Run {
  std::vector<std::vector<float>> sums, residuals;  // [rank]
};

template <class Reducer>
Run run(int begin, int end, std::vector<std::size_t> const& ends, std::vector<std::vector<float>> const& saved = {}) {
  constexpr std::size_t n = 400;
  auto done               = Run{std::vector<std::vector<float>>(3), std::vector<std::vector<float>>(3)};
  auto const ended        = on_ranks<LocalTransport>(3, n, [&](auto& at, auto& x) {
    auto const me = static_cast<std::size_t>(at.rank());
    auto reducer  = Reducer{TopK<30>{}, at, ends, x};
    reducer.begin();
    reducer.finish();  // of nothing: it must not count
    std::ranges::fill(reducer.residual(), 0.0F);
    if (!saved.empty()) std::ranges::copy(saved[me], reducer.residual().begin());
    for (int step = begin; step < end; ++step) {
      auto const random = Random{9, static_cast<std::uint64_t>(at.rank() * 1'000 + step)};
      for (std::size_t i = 0; i < n; ++i) x[i] = random.uniform(i, -1.0F, 1.0F);
      reducer.begin();
      reducer.ready(n / 2);
      reducer.finish();
      done.sums[me].insert(done.sums[me].end(), x.begin(), x.end());
    }
    auto const left = reducer.residual();
    done.residuals[me].assign(left.begin(), left.end());
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  return done;
}

}  // namespace

TEMPLATE_TEST_CASE("a run that is stopped, and goes on with the residual that was saved, has the same bits",
                   "[reduce][top_k]", (BucketedReducer<TopK<30>, LocalEndpoint>),
                   (ThreadedReducer<TopK<30>, LocalEndpoint>)) {
  auto const ends   = std::vector<std::size_t>{40, 150, 400};
  auto const whole  = run<TestType>(0, 20, ends);
  auto const first  = run<TestType>(0, 12, ends);
  auto const second = run<TestType>(12, 20, ends, first.residuals);
  auto const forgot = run<TestType>(12, 20, ends);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    auto const last = Span<float const>{whole.sums[rank]}.last(8 * 400);
    CHECK(first.residuals[rank].size() == 400);
    CHECK(same_bits(second.sums[rank], last));
    CHECK(same_bits(second.residuals[rank], whole.residuals[rank]));
    CHECK(!same_bits(forgot.sums[rank], last));
  }
}

TEST_CASE("an algorithm that leaves nothing out has no residual, and one without memory for it says so",
          "[reduce][top_k]") {
  auto endpoints = LocalTransport{}.connect(Group::all_local(1));
  auto x         = std::vector<float>(8);
  auto const one = std::array<std::size_t, 1>{8};
  CHECK(BucketedReducer{PairwiseAllReduce{}, endpoints[0], one, Span<float>{x}}.residual().empty());
  auto operation = TopKOperation<LocalEndpoint, 10>{};
  auto memory    = std::vector<float>(7);
  operation.keep_residual_in(memory);
  CHECK_THROWS_WITH(operation.restart(endpoints[0], x, Op::sum, Tag{1}),
                    Catch::Contains("a gradient of 8 elements and memory for a residual of 7"));
}

TEST_CASE("a NaN is not left behind by TopK, and other operations are refused", "[reduce][top_k]") {
  auto const ended = on_ranks<LocalTransport>(2, 1'000, [](auto& at, auto& x) {
    if (at.rank() == 1) x[617] = std::nanf("");
    TopK<1>{}.all_reduce(at, x, Op::sum);
  });
  for (auto const& rank : ended) CHECK(std::isnan(rank.x[617]));
  auto const refused = on_ranks<LocalTransport>(1, 4, [](auto& at, auto& x) { TopK<1>{}.all_reduce(at, x, Op::max); });
  CHECK_THAT(refused[0].error, Catch::Contains("TopK adds up; it cannot form the max"));
}

TEST_CASE("rows are added up by their number; bytes follow the rows touched, never the table", "[reduce][sparse]") {
  auto const ranks            = GENERATE(1, 2, 3, 5);
  constexpr std::size_t width = 4, table = 1'000'000;
  auto const rows_of = [](Rank rank) {  // uneven; rank 1 has none; some twice
    auto rows = std::vector<std::uint32_t>{};
    if (rank != 1)
      for (int i = 0; i < 20 + rank; ++i) rows.push_back(static_cast<std::uint32_t>((i * 7 + rank * 3) % 40 * 20'000));
    return rows;
  };
  auto wanted = std::map<std::uint32_t, float>{};
  for (Rank rank = 0; rank < ranks; ++rank)
    for (auto const row : rows_of(rank)) wanted[row] += static_cast<float>(rank + 1);

  auto sums        = std::vector<SparseRows>(static_cast<std::size_t>(ranks));
  auto const ended = on_ranks<Counting<LocalTransport>>(ranks, 0, [&](auto& at, auto&) {
    auto mine   = SparseRows{.rows = rows_of(at.rank()), .values = {}, .width = width};
    mine.values = std::vector<float>(mine.rows.size() * width, static_cast<float>(at.rank() + 1));
    sums[static_cast<std::size_t>(at.rank())] = all_reduce_rows(at, mine, table);
  });
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    CHECK(ended[rank].error == "");
    CHECK(ended[rank].cost.bytes < 5 * 30 * (4 + width * 4) + 5 * 8);  // a table has 16 MB
    REQUIRE(sums[rank].rows.size() == wanted.size());
    auto i = std::size_t{0};
    for (auto const& [row, value] : wanted) {
      CHECK(sums[rank].rows[i] == row);
      for (std::size_t c = 0; c < width; ++c) CHECK(sums[rank].values[i * width + c] == value);
      ++i;
    }
  }
}

TEST_CASE("rows outside the table, and values that are no rows, are refused with both numbers", "[reduce][sparse]") {
  auto const outside = on_ranks<LocalTransport>(
      1, 0, [](auto& at, auto&) { all_reduce_rows(at, {.rows = {7}, .values = {1, 2}, .width = 2}, 7); });
  CHECK_THAT(outside[0].error, Catch::Contains("row 7 is not in a table of 7 rows"));
  auto const uneven = on_ranks<LocalTransport>(
      1, 0, [](auto& at, auto&) { all_reduce_rows(at, {.rows = {1, 2}, .values = {1, 2, 3}, .width = 2}, 7); });
  CHECK_THAT(uneven[0].error, Catch::Contains("3 values are not 2 rows of 2"));
}

namespace {

/// Rank 0 adds up rows of a table of 10 with another rank, which says `counts` and sends `rows` with `vectors`.
std::string what_rank_0_says(std::array<std::uint64_t, 2> counts, std::vector<std::uint32_t> const& rows,
                             std::vector<std::uint32_t> const& vectors, std::vector<float> const& values,
                             std::size_t& largest) {
  auto const where = CallSite::here();  // both ranks call it from one line
  auto const ended = on_ranks<LocalTransport>(2, 0, [&](auto& at, auto&) {
    if (at.rank() == 0) {
      largest_allocation = 0;
      auto const told    = gsl::finally([&] { largest = largest_allocation; });
      all_reduce_rows(at, {.rows = {3}, .values = {1, 2}, .width = 2}, 10, Tag{}, where);
      return;
    }
    auto const gather = [&]<class T>(std::vector<T> const& mine, std::size_t of_other) {
      auto const each = std::array<std::size_t, 2>{of_other, mine.size()};
      auto all        = std::vector<T>(each[0] + each[1]);
      all_gather(at, Span<T const>{mine}, Span<T>{all}, each, Tag{}, where);
    };
    gather(std::vector<std::uint64_t>{counts[0], counts[1]}, 2);
    if (rows.size() != counts[0] || values.size() != counts[1]) {
      auto row = std::array<std::byte, 4>{};
      return at.recv(0, Tag{}, row).wait();  // rank 0 waits for rows: none come
    }
    gather(rows, 1);
    gather(vectors, 1);
    gather(values, 2);
  });
  return ended[0].error;
}

}  // namespace

TEST_CASE("rows and vectors that another rank sends are compared with the table before they are used",
          "[reduce][sparse]") {
  auto largest    = std::size_t{0};
  auto const says = [&](std::vector<std::uint32_t> const& rows, std::vector<std::uint32_t> const& vectors,
                        std::vector<float> const& values) {
    return what_rank_0_says({rows.size(), values.size()}, rows, vectors, values, largest);
  };
  CHECK(says({9, 3}, {1, 0}, {1, 2, 3, 4}) == "");
  CHECK_THAT(says({0, 17}, {0, 1}, {1, 2, 3, 4}),
             Catch::Contains("rank 1 sends row 17 of the table, which has 10 rows"));
  CHECK_THAT(says({0, 1}, {2, 0}, {1, 2, 3, 4}),
             Catch::Contains("rank 1 sends a row of the table with vector 2, but has sent 2 vectors"));
  CHECK_THAT(says({0}, {0}, {1, 2, 3}), Catch::Contains("rank 1 announces 1 rows and 3 values of the table, whose rows "
                                                        "have 2 values"));
  for (auto const counts : {std::array<std::uint64_t, 2>{1 << 28, 0}, std::array<std::uint64_t, 2>{1, 1ULL << 31},
                            std::array<std::uint64_t, 2>{~0ULL, 2}}) {
    CHECK_THAT(what_rank_0_says(counts, {}, {}, {}, largest),
               Catch::Contains("operation 2 of rank 0") || Catch::Contains("rank 1 announces"));
    CHECK(largest <= std::size_t{16} << 20);
  }
}

TEST_CASE("more rows than a piece are gathered in the order of ranks, and so are as many again", "[reduce][sparse]") {
  constexpr std::size_t width = 16, rows = piece_of<float> / width + 1'000;  // of rank 0; rank 1 has half as many
  auto const ended = on_ranks<Counting<LocalTransport>>(2, 0, [&](auto& at, auto&) {
    auto const n = at.rank() == 0 ? rows : rows / 2;
    auto mine    = SparseRows{.width = width};
    auto each    = std::vector<std::uint32_t>(n);
    for (std::size_t i = 0; i < n; ++i) {
      mine.rows.push_back(static_cast<std::uint32_t>(rows - i));
      each[i] = static_cast<std::uint32_t>(i);
      for (std::size_t c = 0; c < width; ++c)
        mine.values.push_back(static_cast<float>(at.rank() + 1) * static_cast<float>(i + c));
    }
    auto all = RowGather<std::remove_reference_t<decltype(at)>>{};
    for (auto const again : {false, true}) {
      auto const before = at.sent().messages;
      all.gather(at, mine.rows, each, mine.values, {rows + 1, width}, Tag{});
      if (again && at.sent().messages - before > 4 * 9) throw Error{"memory for it was there"};
      auto const got = all.rows(), vectors = all.vectors();
      if (got.size() != rows + rows / 2 || all.values().size() != got.size() * width) throw Error{"others are missing"};
      for (std::size_t i = 0; i < got.size(); ++i) {
        auto const k    = i < rows ? i : i - rows;
        auto const from = static_cast<float>(i < rows ? 1 : 2) * static_cast<float>(k + 3);
        if (got[i] != rows - k || all.values()[vectors[i] * width + 3] != from) throw Error{"another order"};
      }
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("an element that another rank sends under TopK is one of the gradient, or a fault that names it",
          "[reduce][top_k]") {
  auto const where = CallSite::here();
  auto const ended = on_ranks<LocalTransport>(2, 1'000, [&](auto& at, auto& x) {
    if (at.rank() == 0) return TopK<1>{}.all_reduce(at, x, Op::sum, Tag{}, where);
    auto both       = std::vector<Picked<float>>{{}, {1'000, 3.0F}};
    auto const ends = std::array<std::size_t, 2>{1, 2};
    auto gathering  = ScheduleExecution<RingAllGather, LocalEndpoint, Picked<float>>{};
    gathering.restart(
        at, {.collective = Collective::all_reduce, .x = Span<Picked<float>>{both}, .where = where, .ends = ends});
    gathering.finish();
  });
  CHECK_THAT(ended[0].error, Catch::Contains("rank 1 sends element 1000 of 1000 under TopK"));
}
