// SPDX-License-Identifier: Apache-2.0
#include "test/placement/shapes.hpp"

#include <catch2/catch.hpp>

#include <limits>

namespace partitioned_test {

using namespace chorale;
using namespace chorale::placement;
using namespace chorale::test;

static_assert(Placement<Partitioned<FixedShards<3>>> && Sharding<Partitioned<MaxSize<9>, GreedyByBytes>>);
static_assert(Partitioner<FixedShards<3>> && Partitioner<MinSize<9, 2>> && !Partitioner<GreedyByBytes>);

// Seven rows in three pieces: the first gets one more. No row number overflows where there are 2^64 - 1 of them.
constexpr auto seven = VariableShape{"seven", {7, 4}};
static_assert(layout(seven, 0, 3).along == Range{0, 3} && layout(seven, 1, 3).along == Range{3, 5});
static_assert(layout(seven, 2, 3) == Piece{0, {5, 7}, 0, 2} && layout(seven, 1, 3, 1) == Piece{0, {2, 3}, 1, 1});
static_assert(layout(seven, 8, 9).along == Range{7, 7});  // fewer rows than ranks: the last have none
static_assert(layout(seven, 0, 3, 2).along == Range{0, 1} && layout(seven, 2, 3, 2).along.size() == 0);
constexpr auto most = std::numeric_limits<std::size_t>::max();
static_assert(layout({"most", {most}, 1}, 6, 7).along.end == most);

namespace {

constexpr auto one_huge = std::array{huge};
constexpr auto& thirds  = layout_of<Partitioned<FixedShards<3>>, one_huge, 3>;
static_assert(thirds.pieces[0].along == Range{0, 333'333'333'333'334});
static_assert(thirds.pieces[1].along == Range{333'333'333'333'334, 666'666'666'666'667});
static_assert(thirds.pieces[2].along == Range{666'666'666'666'667, 1'000'000'000'000'000});
static_assert(thirds.bytes_of(0) == 40 * 333'333'333'333'334 && thirds.imbalance() < 1.000001);
static_assert(runs(thirds.pieces[2], huge).size() == 1);
static_assert(runs(thirds.pieces[2], huge)[0] == Range{6'666'666'666'666'670, 10'000'000'000'000'000});

// Along the second axis a third is a box: 10^15 runs, none of which is made before it is asked for.
constexpr auto& columns = layout_of<Partitioned<FixedShards<3, 1>>, one_huge, 3>;
static_assert(columns.pieces[1].along == Range{4, 7} && runs(columns.pieces[1], huge).size() == 1'000'000'000'000'000);
static_assert(runs(columns.pieces[1], huge)[huge.dims[0] - 1] == Range{9'999'999'999'999'994, 9'999'999'999'999'997});

static_assert(runs(Piece{0, {0, 10}, 1}, huge).size() == 1);  // but all ten columns are one run again

// At most 1 GiB: 26,843,545 rows of 40 bytes fit. Any piece of the 37 million is computed by itself.
static_assert(MaxSize<gibi>::shards(huge) == 37'252'904);
static_assert(MaxSize<gibi, 1>::shards(huge) == 10);  // one column alone is 4 PB
static_assert(layout(huge, 37'252'903, 37'252'904).along.end == huge.dims[0]);
static_assert(layout(huge, 0, 37'252'904).along.size() * 40 <= gibi);
static_assert(MinSize<gibi, std::size_t{1} << 60>::shards(huge) == 37'252'902);
static_assert(MinSize<gibi, 16>::shards(huge) == 16);

constexpr auto small = VariableShape{"small", {3, 25}};  // rows of 100 bytes
static_assert(MinSize<150, 9>::shards(small) == 1);      // two pieces would have 200 and 100
static_assert(MinSize<100, 9>::shards(small) == 3 && MinSize<101, 9>::shards(small) == 1);
static_assert(MaxSize<300>::shards(small) == 1 && MaxSize<299>::shards(small) == 2 && MaxSize<99>::shards(small) == 3);
static_assert(FixedShards<9>::shards(small) == 3 && FixedShards<9, 1>::shards(small) == 9);

constexpr auto layer         = std::array{VariableShape{"kernel", {9, 64}}, VariableShape{"bias", {64}}};
constexpr auto& along_second = layout_of<Partitioned<FixedShards<2, 1>>, layer, 2>;
static_assert(along_second.pieces.size() == 3 && is_whole(along_second.pieces[2], layer[1]));

/// A placement by hand: this variable here, the others there.
struct TableApart : Central {
  std::string_view table;
  int rest = 0;

  void assign(Span<Piece> pieces, Span<VariableShape const> variables, int servers) const {
    for (auto& piece : pieces) piece.server = variables[piece.variable].name == table ? servers - 1 : rest;
  }
};

}  // namespace

TEST_CASE("pieces of every variable are disjoint, in order, even, and cover it", "[placement]") {
  auto cut = 0;
  for (std::uint64_t which = 0; which < 200; ++which) {
    auto const shapes  = random_shapes(which);
    auto const servers = static_cast<int>(which % 9) + 1;
    each_sharding([&](auto const& sharding, int) {
      auto const layout = lay_out(sharding, shapes, servers);
      auto owners       = std::vector<std::vector<int>>{};
      for (auto const& shape : shapes) owners.emplace_back(shape.elements());
      auto last = std::vector<Range>(shapes.size());
      for (auto const& piece : layout.pieces) {
        CHECK((piece.server >= 0 && piece.server < servers));
        CHECK(piece.along.begin == last[piece.variable].end);
        if (piece.along.begin > 0) {
          auto const before = last[piece.variable].size();
          CHECK((before == piece.along.size() || before == piece.along.size() + 1));
          ++cut;
        }
        last[piece.variable] = piece.along;
        auto covered = std::size_t{0}, end = std::size_t{0};
        for (Range const run : runs(piece, shapes[piece.variable])) {
          CHECK((run.size() > 0 && run.begin >= end));
          end = run.end;
          covered += run.size();
          for (auto i = run.begin; i < run.end; ++i) ++owners[piece.variable].at(i);
        }
        CHECK(covered == elements(piece, shapes[piece.variable]));
        CHECK(covered == shape_of(piece, shapes[piece.variable]).elements());
      }
      for (auto const& variable : owners)
        CHECK(std::all_of(variable.begin(), variable.end(), [](int n) { return n == 1; }));
    });
  }
  CHECK(cut > 10'000);
}

TEST_CASE("pieces keep the bytes that their partitioner promises", "[placement]") {
  for (std::uint64_t which = 0; which < 300; ++which) {
    auto const shapes = random_shapes(which);
    for (auto const& piece : lay_out(Partitioned<MinSize<64, 5>>{}, shapes, 2).pieces)
      CHECK((bytes(piece, shapes[piece.variable]) >= 64 || is_whole(piece, shapes[piece.variable])));
    for (auto const& piece : lay_out(Partitioned<MaxSize<100, 2>>{}, shapes, 2).pieces) {
      auto const& shape = shapes[piece.variable];
      CHECK((bytes(piece, shape) <= 100 || piece.along.size() == 1 || shape.rank <= 2));
    }
  }
}

TEST_CASE("pieces go round robin over all variables, or by bytes", "[placement]") {
  auto const shapes  = std::vector<VariableShape>{{"a", {7, 2}}, {"b", {2, 9}}};
  auto const servers = [](Layout<> const& layout) {
    auto all = std::vector<int>{};
    for (auto const& piece : layout.pieces) all.push_back(piece.server);
    return all;
  };
  CHECK(servers(lay_out(Partitioned<FixedShards<3>>{}, shapes, 2)) == std::vector{0, 1, 0, 1, 0});
  CHECK(servers(lay_out(Partitioned<FixedShards<3>, GreedyByBytes>{}, shapes, 2)) ==
        std::vector{0, 1, 1, 0, 1});  // 36 and 36 first, then 24, 16, 16 bytes
}

TEST_CASE("a variable without the axis stays whole; that none has it is refused", "[placement]") {
  auto const bias   = std::vector<VariableShape>{{"bias", {64}}};
  auto const both   = std::vector<VariableShape>{{"bias", {64}}, {"kernel", {9, 64}}};
  auto const layout = lay_out(Partitioned<FixedShards<4, 1>>{}, both, 2);
  CHECK(layout.pieces.size() == 5);
  CHECK(layout.pieces[0] == Piece{0, {0, 64}, 0, 0});
  CHECK_THROWS_WITH((lay_out(Partitioned<FixedShards<4, 1>>{}, bias, 2)),
                    Catch::Contains("none of 1 variables, the first is bias, has the axis 1"));
  CHECK(lay_out(Partitioned<FixedShards<4, 1>>{}, {}, 2).pieces.empty());
}

TEST_CASE("a huge variable is planned piece by piece", "[placement]") {
  auto const shapes = std::vector<VariableShape>{huge};
  auto const layout = lay_out(Partitioned<MaxSize<1'024 * gibi>, GreedyByBytes>{}, shapes, 9, 2);
  CHECK(layout.pieces.size() == 36'380);
  CHECK(layout.imbalance() < 1.001);
  CHECK(layout.total_bytes() == 3 * huge.bytes());
  CHECK_THROWS_WITH((lay_out(Partitioned<MaxSize<1'024>>{}, shapes, 2)),
                    Catch::Contains("makes 40000000000000 pieces"));
}

TEST_CASE("a placement by hand is one function", "[placement]") {
  auto const shapes = std::vector<VariableShape>{{"a", {4}}, {"table", {90, 2}}, {"b", {4}}};
  auto const layout = lay_out(Partitioned<FixedShards<2>, TableApart>{{}, {{}, "table"}}, shapes, 3);
  CHECK(layout.bytes_of(2) == 720);
  CHECK(layout.bytes_of(0) == 32);
  CHECK_THROWS_WITH(lay_out(TableApart{{}, "table", 3}, shapes, 3), Catch::Contains("variable a is on server 3 of 3"));
}

}  // namespace partitioned_test
