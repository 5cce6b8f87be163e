// SPDX-License-Identifier: Apache-2.0
#include "test/support/axis_threads.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/one_call.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/random.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/nn/parallel/sharded_tables.hpp>
#include <chorale/placement/variable_piece.hpp>
#include <chorale/tensor/axes.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sharded_tables_test {

using namespace chorale;

namespace {

constexpr int table_rows = 7, width = 12;

template <int P> using Tables = Axis<"tables", P>;
using Ids                     = nn::Of<int, 4>;
using Ragged                  = nn::Of<int, -1>;

/// Numbers of both signs and of many magnitudes, so that the order of a sum shows; some are -0.
std::vector<float> numbers(std::size_t n, std::uint64_t stream) {
  auto const random = Random{Seed{5}, stream};
  auto x            = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = i % 17 == 3 ? -0.0F : std::ldexp(random.uniform(i, -1.0F, 1.0F), static_cast<int>(i % 11));
  return x;
}

/// The ids of a batch, each row's behind those of the row before.
struct Bags {
  std::vector<int> ids, lengths;

  std::size_t rows() const { return lengths.size(); }
  Bags part(Range rows) const {
    auto some  = Bags{};
    auto first = ids.begin();
    for (std::size_t r = 0; r < rows.end; ++r) {
      if (r >= rows.begin)
        some.ids.insert(some.ids.end(), first, first + lengths[r]), some.lengths.push_back(lengths[r]);
      first += lengths[r];
    }
    return some;
  }
};

Bags bags_of(std::size_t rows, bool ragged, int table, bool all_to_one, std::uint64_t stream) {
  auto bags        = Bags{};
  auto drawn       = std::uint64_t{0};
  auto const below = [&](int n) {
    return static_cast<int>(Random{Seed{9}, stream}.uniform(drawn++) * static_cast<float>(n));
  };
  for (std::size_t r = 0; r < rows; ++r) {
    bags.lengths.push_back(ragged ? below(6) : 4);
    for (int i = 0; i < bags.lengths.back(); ++i) bags.ids.push_back(all_to_one ? 0 : below(table));
  }
  return bags;
}

/// Reads a batch of one or several fields into a call.
template <class Call, std::size_t n> void read(Call& call, std::array<Bags, n> const& all) {
  auto lengths = std::array<std::vector<int>, n>{};
  for (std::size_t i = 0; i < n; ++i) lengths[i] = all[i].lengths;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    call.read(all[0].rows(), lengths, all[I].ids...);
  }(std::make_index_sequence<n>{});
}

/// Rows of output o of a call that are in a part of the batch.
std::vector<float> some(std::vector<float> const& all, std::size_t rows, Range of) {
  auto const each = rows == 0 ? 0 : all.size() / rows;
  return {all.begin() + static_cast<std::ptrdiff_t>(of.begin * each),
          all.begin() + static_cast<std::ptrdiff_t>(of.end * each)};
}

/// Compares two steps of a split layer with those of one device: `reference` has computed the first one.
///
/// returns   bytes that all ranks have sent in the second step
template <class Split, int P, class... In>
std::size_t compare(std::vector<float> const& whole, std::array<Bags, sizeof...(In)> const& batch,
                    std::array<std::vector<float>, sizeof...(In)> const& y,
                    std::array<std::vector<float>, sizeof...(In)> const& dy, std::vector<float> const& gradient,
                    bool deals_rows) {
  auto ranks        = test::AxisThreads{"tables", P, deals_rows};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    auto call        = test::OneCall<Split, In...>{};
    auto const spec  = call.specs[0];
    auto const total = batch[0].rows();
    auto const mine  = deals_rows ? share(total, group.rank, P) : Range{0, total};
    call.v[0]        = test::part_of(whole, spec, group.rank);
    auto part        = batch;
    for (auto& bags : part) bags = bags.part(mine);
    read(call, part);
    auto const groups = std::array{group};
    call.forward(groups);
    for (std::size_t o = 0; o < y.size(); ++o) {
      if (!test::equal_bits(call.y[o], some(y[o], total, mine))) throw BadArgument{"other outputs", ""};
      std::ranges::copy(some(dy[o], total, mine), call.dy[o].begin());
    }
    call.backward();
    if (!test::equal_bits(call.gradient(0), test::part_of(gradient, spec, group.rank)))
      throw BadArgument{"other gradients", ""};
  });
  for (auto const& error : errors) CHECK(error == "");
  CHECK_FALSE(ranks.left());
  auto sent = std::size_t{0};
  for (Rank r = 0; r < P; ++r) sent += ranks.sent(r);
  return sent;
}

/// The values of a whole table, padding apart: what one device computes from a batch, outputs and gradients.
template <class Plain, class In> struct OneDevice {
  std::vector<float> whole, y, dy, gradient;

  OneDevice(Bags const& bags, int rows_of_table) : whole{numbers(static_cast<std::size_t>(rows_of_table * width), 1)} {
    auto call = test::OneCall<Plain, In>{};
    call.v[0] = whole;
    read(call, std::array{bags});
    call.forward();
    y = call.y[0];
    std::ranges::copy(numbers(y.size(), 2), call.dy[0].begin());
    dy = call.dy[0];
    call.backward();
    gradient = call.gradient(0);
  }
};

template <class Plain, class Split, int P, class In, int rows_of_table>
std::size_t check(Bags const& bags, bool deals_rows) {
  auto const one = OneDevice<Plain, In>{bags, rows_of_table};
  INFO(P << " ranks, deals rows: " << deals_rows << ", rows of the batch: " << bags.rows());
  return compare<Split, P, In>(one.whole, {bags}, {one.y}, {one.dy}, one.gradient, deals_rows);
}

template <int P, int rows_of_table, class... Cut> void check_all() {
  using Plain    = nn::Embedding<rows_of_table, width>;
  using Split    = nn::ShardedEmbedding<Tables<P>, rows_of_table, width, Cut...>;
  using PlainBag = nn::EmbeddingBag<rows_of_table, width>;
  using SplitBag = nn::ShardedEmbeddingBag<Tables<P>, rows_of_table, width, nn::Bag::mean, Cut...>;
  for (auto const deals : {true, false})
    for (auto const rows : {13U, 2U})  // of two rows, some ranks have none
      for (auto const all_to_one : {false, true}) {
        check<Plain, Split, P, Ids, rows_of_table>(bags_of(rows, false, rows_of_table, all_to_one, 1), deals);
        check<PlainBag, SplitBag, P, Ragged, rows_of_table>(bags_of(rows, true, rows_of_table, all_to_one, 2), deals);
      }
}

std::string field_of_ids() { return "Users"; }

}  // namespace

TEST_CASE("a table split by rows gives outputs and gradients with the bits of one device", "[nn][tables]") {
  check_all<1, table_rows>();
  check_all<2, table_rows>();
  check_all<3, table_rows, nn::ByRow>();
  check_all<4, table_rows>();
  check_all<4, 3>();  // the last rank has no row
  check_all<3, table_rows, nn::ByRowInTurn>();
}

TEST_CASE("a table split by columns gives outputs and gradients with the bits of one device", "[nn][tables]") {
  check_all<1, table_rows, nn::ByColumn>();
  check_all<3, table_rows, nn::ByColumn>();
  check_all<4, table_rows, nn::ByColumn>();
}

TEST_CASE("a split table with a dense gradient adds it up in the order of one device", "[nn][tables]") {
  using Dense    = nn::Embedding<table_rows, width, nn::DenseGradient>;
  using DenseBag = nn::EmbeddingBag<table_rows, width, nn::Bag::sum, nn::DenseGradient>;
  auto const one = OneDevice<Dense, Ids>{bags_of(13, false, table_rows, false, 1), table_rows};
  using Split    = nn::ShardedEmbedding<Tables<2>, table_rows, width, nn::DenseGradient>;
  using SplitBag = nn::ShardedEmbeddingBag<Tables<2>, table_rows, width, nn::Bag::sum, nn::ByColumn, nn::DenseGradient>;
  static_assert(!Split::gives_rows && !SplitBag::gives_rows);
  auto ranks        = test::AxisThreads{"tables", 2, true};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    auto call       = test::OneCall<Split, Ids>{};
    auto const mine = share(13, group.rank, 2);
    call.v[0]       = test::part_of(one.whole, call.specs[0], group.rank);
    read(call, std::array{bags_of(13, false, table_rows, false, 1).part(mine)});
    auto const groups = std::array{group};
    call.forward(groups);
    std::ranges::copy(some(one.dy, 13, mine), call.dy[0].begin());
    call.backward();
    auto expected = test::part_of(one.gradient, call.specs[0], group.rank);
    for (auto& x : expected) x = std::isnan(x) ? 0.0F : x;
    if (!test::equal_bits(call.dv[0], expected)) throw BadArgument{"other gradients", ""};
  });
  CHECK(errors == std::vector<std::string>(2));
  check<DenseBag, SplitBag, 2, Ragged, table_rows>(bags_of(13, true, table_rows, false, 2), true);
}

TEST_CASE("rows of a split table lie as placement::layout cuts them, and padding is in no whole", "[nn][tables]") {
  [&]<int... P>(std::integer_sequence<int, P...>) {
    (
        [&] {
          using Cut    = nn::detail::CutRows<table_rows, P + 1, false>;
          using InTurn = nn::detail::CutRows<table_rows, P + 1, true>;
          auto seen = std::vector<int>(table_rows), in_turn = seen;
          for (int part = 0; part <= P; ++part) {
            auto const along =
                placement::layout({"table", {table_rows, width}}, static_cast<std::size_t>(part), P + 1).along;
            for (int i = 0; i < Cut::most; ++i) {
              auto const id = Cut::id(part, i), other = InTurn::id(part, i);
              CHECK(id == (static_cast<std::size_t>(i) < along.size() ? static_cast<int>(along.begin) + i : -1));
              if (id >= 0) ++seen[static_cast<std::size_t>(id)];
              if (other >= 0) ++in_turn[static_cast<std::size_t>(other)];
              CHECK((id < 0 || (Cut::owner(id) == part && Cut::row(id) == i)));
              CHECK((other < 0 || (InTurn::owner(other) == part && InTurn::row(other) == i)));
            }
          }
          CHECK(seen == std::vector<int>(table_rows, 1));
          CHECK(in_turn == std::vector<int>(table_rows, 1));
        }(),
        ...);
  }(std::make_integer_sequence<int, 9>{});
}

TEST_CASE("bytes sent are ids, vectors and counts", "[nn][tables]") {
  constexpr int P       = 3;
  constexpr auto vector = width * sizeof(float);
  auto const bags       = bags_of(13, true, table_rows, false, 2);
  auto elsewhere = std::size_t{0}, owners = elsewhere, filled = elsewhere, ids_sent = elsewhere;  // of ids, bags
  for (Rank r = 0; r < P; ++r) {
    auto const rows = share(13, r, P);
    for (auto row = rows.begin; row < rows.end; ++row) {
      auto const bag = bags.part({row, row + 1});
      auto asked     = std::array<bool, P>{};
      for (auto const id : bag.ids) {
        auto const owner = id < 3 ? 0 : id < 5 ? 1 : 2;
        elsewhere += owner != r;
        asked[static_cast<std::size_t>(owner)] = owner != r;
      }
      for (auto const is : asked) owners += is;
      filled += !bag.ids.empty();
      ids_sent += bag.ids.size();
    }
  }
  auto const counts = P * (P - 1) * sizeof(std::uint32_t);
  using PlainBag    = nn::EmbeddingBag<table_rows, width>;
  using ByRow       = nn::ShardedEmbeddingBag<Tables<P>, table_rows, width>;
  using ByColumn    = nn::ShardedEmbeddingBag<Tables<P>, table_rows, width, nn::Bag::mean, nn::ByColumn>;
  CHECK(check<PlainBag, ByRow, P, Ragged, table_rows>(bags, true) ==
        counts + elsewhere * (4 + vector) + owners * vector);
  CHECK(check<PlainBag, ByColumn, P, Ragged, table_rows>(bags, true) ==
        counts + (P - 1) * (ids_sent * 4 + 2 * filled * vector / P));
  CHECK(check<PlainBag, ByColumn, P, Ragged, table_rows>(bags, false) ==
        (P - 1) * filled * vector);  // no ids, no gradients
}

TEST_CASE("several tables are dealt out whole, and have the bits of one device", "[nn][tables]") {
  using Three = nn::TableRows<5, 9, 4>;
  using Dealt = nn::detail::DealtTables<Three, 2>;
  static_assert(Dealt::dealt.owner == std::array<Rank, 3>{1, 0, 1} && Dealt::dealt.most == 9);
  static_assert(Dealt::id(1, 0) == 0 && Dealt::id(1, 5) == 14 && Dealt::id(0, 0) == 5 && Dealt::id(1, 9) == -1);
  auto const batch =
      std::array{bags_of(13, true, 5, false, 1), bags_of(13, false, 9, false, 2), bags_of(13, true, 4, false, 3)};

  auto const whole = numbers(18 * width, 1);
  auto gradient    = std::vector<float>{};
  auto y = std::array<std::vector<float>, 3>{}, dy = y;
  auto const one = [&]<int rows, class In>(std::size_t t, std::size_t first, std::type_identity<In>) {
    auto call = test::OneCall<nn::EmbeddingBag<rows, width>, In>{};
    call.v[0].assign(whole.begin() + static_cast<std::ptrdiff_t>(first * width),
                     whole.begin() + static_cast<std::ptrdiff_t>((first + rows) * width));
    read(call, std::array{batch[t]});
    call.forward();
    y[t]  = call.y[0];
    dy[t] = numbers(y[t].size(), 7 + t);
    std::ranges::copy(dy[t], call.dy[0].begin());
    call.backward();
    auto const of = call.gradient(0);
    gradient.insert(gradient.end(), of.begin(), of.end());
  };
  one.template operator()<5>(0, 0, std::type_identity<Ragged>{});
  one.template operator()<9>(1, 5, std::type_identity<Ids>{});
  one.template operator()<4>(2, 14, std::type_identity<nn::Of<int, -3>>{});
  auto const run = [&]<int P>(std::integral_constant<int, P>, bool deals) {
    return compare<nn::ShardedTables<Tables<P>, width, Three>, P, Ragged, Ids, nn::Of<int, -3>>(whole, batch, y, dy,
                                                                                                gradient, deals);
  };
  for (auto const deals : {true, false}) {
    run(std::integral_constant<int, 1>{}, deals);
    run(std::integral_constant<int, 3>{}, deals);
    run(std::integral_constant<int, 4>{}, deals);  // the last rank has no table
  }
  auto ids = std::size_t{0}, bags = ids;  // on ranks that do not have their table
  for (std::size_t t = 0; t < 3; ++t) {
    auto const there = batch[t].part(share(13, t == 1 ? 1 : 0, 2));
    ids += there.ids.size();
    for (auto const n : there.lengths) bags += n > 0;
  }
  CHECK(run(std::integral_constant<int, 2>{}, true) == 2 * 4 + 4 * ids + 2 * bags * width * sizeof(float));
}

TEST_CASE("an id that is in no row is one sentence, and nothing was sent", "[nn][tables]") {
  auto ranks        = test::AxisThreads{"tables", 2, true};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    auto call = test::OneCall<nn::ShardedEmbeddingBag<Tables<2>, table_rows, width>, Ids>{};
    call.read(2, {0, 1, 2, 3, 4, 5, group.rank == 1 ? table_rows : 6, 0});
    auto const groups = std::array{group};
    call.forward(groups, &field_of_ids);
  });
  CHECK(errors[1].find(
            "row 1 of the batch has id 7 at position 2 of field Users, but the nn::Embedding that takes it has "
            "7 rows, 0 to 6.") != std::string::npos);
  CHECK(errors[0].find("rank 1 of the axis is gone") != std::string::npos);
  CHECK(ranks.sent(1) == 0);
}

namespace {

constexpr auto last_of_bag = std::uint32_t{1} << 31;

/// Rank 0 makes a step of a layer; rank 1 says that it asks for `count` rows, and then sends `asked`.
///
/// largest   the most memory that rank 0 has asked for at once
template <class Layer, class... In>
std::string what_rank_0_says(std::uint32_t count, std::vector<std::uint32_t> const& asked, std::size_t& largest) {
  auto ranks        = test::AxisThreads{"tables", 2, true};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    if (group.rank == 1) {
      auto from = std::vector<std::uint32_t>(1);
      group.exchange(0, std::as_bytes(Span<std::uint32_t const>{&count, 1}), 0,
                     std::as_writable_bytes(Span<std::uint32_t>{from}));
      from.resize(from[0]);
      group.exchange(0, std::as_bytes(Span<std::uint32_t const>{asked}), 0,
                     std::as_writable_bytes(Span<std::uint32_t>{from}));
      throw Error{"it ends without an answer"};
    }
    auto call = test::OneCall<Layer, In...>{};
    for (std::size_t i = 0; i < call.v.size(); ++i) std::ranges::fill(call.v[i], 1.0F);
    call.read(1, std::vector<typename In::type>{0, 1, 2, 3}...);
    auto const groups        = std::array{group};
    test::largest_allocation = 0;
    try {
      call.forward(groups);
    } catch (Error const&) {
      largest = test::largest_allocation;
      throw;
    }
    largest = test::largest_allocation;
  });
  return errors[0];
}
template <class Layer, class... In> std::string what_rank_0_says(std::vector<std::uint32_t> const& asked) {
  auto largest = std::size_t{0};
  return what_rank_0_says<Layer, In...>(static_cast<std::uint32_t>(asked.size()), asked, largest);
}

using TwoOfTen = nn::ShardedTables<Tables<2>, width, nn::TableRows<10, 10>>;
using ByRow    = nn::ShardedEmbeddingBag<Tables<2>, table_rows, width>;
using InTurn   = nn::ShardedEmbedding<Tables<2>, table_rows, width, nn::ByRowInTurn>;
using ByColumn = nn::ShardedEmbeddingBag<Tables<2>, table_rows, width, nn::Bag::sum, nn::ByColumn>;

}  // namespace

TEST_CASE("a row that another rank asks for, and that its owner does not have, is a fault that names both",
          "[nn][tables]") {
  CHECK_THAT((what_rank_0_says<TwoOfTen, Ids, Ids>({9 | last_of_bag})), Catch::Contains("rank 1 of the axis is gone"));
  CHECK_THAT((what_rank_0_says<TwoOfTen, Ids, Ids>({0, 9 | last_of_bag, 17 | last_of_bag})),
             Catch::Contains("rank 1 asks for row 17 of table 0, of which rank 0 has 10 rows"));
  CHECK_THAT((what_rank_0_says<TwoOfTen, Ids, Ids>({10 | last_of_bag})), Catch::Contains("rank 1 asks for row 10 of"));
  CHECK_THAT(
      (what_rank_0_says<ByRow, Ids>({0x7fff'ffff, 0 | last_of_bag})),
      Catch::Contains("rank 1 asks for row 2147483647 of the table of embedding_bag, of which rank 0 has 4 rows"));
  CHECK_THAT((what_rank_0_says<InTurn, Ids>({4 | last_of_bag})),
             Catch::Contains("of embedding, of which rank 0 has 4"));
  CHECK_THAT((what_rank_0_says<ByColumn, Ids>({6, 7 | last_of_bag})),
             Catch::Contains("row 7 of the table of embedding_bag"));
  CHECK_THAT(
      (what_rank_0_says<ByColumn, Ids>({6 | last_of_bag, 5})),
      Catch::Contains("rank 1 asks for 2 rows of the table of embedding_bag, of which rank 0 has 7 rows, and the "
                      "last one ends no bag"));
}

TEST_CASE("how many rows another rank asks for is no reason to allocate as many", "[nn][tables]") {
  for (auto const count : {std::uint32_t{1} << 28, ~std::uint32_t{0}}) {
    auto largest = std::size_t{0};
    CHECK_THAT((what_rank_0_says<TwoOfTen, Ids, Ids>(count, {}, largest)),
               Catch::Contains("rank 1 of the axis is gone"));
    CHECK(largest <= std::size_t{16} << 20);
  }
}

TEST_CASE("answers and gradients of more than a piece have the bits of one device", "[nn][tables]") {
  constexpr auto many = piece_bytes / (4 * width * sizeof(float)) + 1'000;  // rows of a rank
  CHECK(check<nn::Embedding<table_rows, width>, nn::ShardedEmbedding<Tables<2>, table_rows, width>, 2, Ids, table_rows>(
            bags_of(2 * many, false, table_rows, true, 4), true) > 2 * piece_bytes);  // all ids are rank 0's
}

}  // namespace sharded_tables_test
