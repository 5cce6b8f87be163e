// SPDX-License-Identifier: Apache-2.0
#include "test/placement/shapes.hpp"

#include <chorale/placement/resharding.hpp>

#include <catch2/catch.hpp>

#include <map>

using namespace chorale;
using namespace chorale::placement;
using namespace chorale::test;

namespace {

constexpr auto one_huge = std::array{huge};
constexpr auto& in_3    = layout_of<Partitioned<FixedShards<3>>, one_huge, 3>;
constexpr auto& in_5    = layout_of<Partitioned<FixedShards<5>>, one_huge, 5>;

constexpr std::size_t elements_moved(auto const& from, auto const& to) {
  auto sum = std::size_t{0};
  for (auto const& move : resharding_copies(from, to)) sum += elements(move.part, huge);
  return sum;
}

// 40 PB go from 3 servers to 5 in 7 moves, computed by the compiler.
static_assert(resharding_copies(in_3, in_5).size() == 7 && elements_moved(in_3, in_5) == huge.elements());
static_assert(resharding_copies(in_3, in_5)[1].part.along == Range{200'000'000'000'000, 333'333'333'333'334});
static_assert(resharding_copies(in_3, in_5)[1] == Move{0, 1, {0, {200'000'000'000'000, 333'333'333'333'334}, 0, 1}});
static_assert(within(in_3.pieces[1], resharding_copies(in_3, in_5)[2].part).along == Range{0, 66'666'666'666'666});

/// What pieces hold, in their order.
using Contents = std::vector<std::vector<std::uint32_t>>;

Contents values_of(Span<VariableShape const> shapes) {
  auto const random = Random{5, 0};
  auto values       = Contents{};
  auto next         = std::uint64_t{0};
  for (auto const& shape : shapes) {
    values.emplace_back(shape.elements());
    for (auto& value : values.back()) value = random.words(next++)[0];
  }
  return values;
}

Contents scattered(Layout<> const& layout, Contents const& values) {
  auto held = Contents{};
  for (auto const& piece : layout.pieces) {
    auto const& shape = layout.variable_of(piece);
    held.emplace_back(elements(piece, shape));
    copy_out(piece, shape, Span<std::uint32_t const>{values[piece.variable]}, Span<std::uint32_t>{held.back()});
  }
  return held;
}

Contents gathered(Layout<> const& layout, Contents const& held) {
  auto values = Contents{};
  for (auto const& shape : layout.variables) values.emplace_back(shape.elements());
  for (std::size_t i = 0; i < held.size(); ++i) {
    auto const& piece = layout.pieces[i];
    copy_in(piece, layout.variable_of(piece), Span<std::uint32_t const>{held[i]},
            Span<std::uint32_t>{values[piece.variable]});
  }
  return values;
}

/// The same, from piece to piece: only the rows of a move are ever elsewhere.
Contents moved(Layout<> const& from, Layout<> const& to, Contents const& old) {
  auto now = Contents{};
  for (auto const& piece : to.pieces) now.emplace_back(elements(piece, to.variable_of(piece)));
  for (auto const& move : resharding_copies(from, to)) {
    auto const& shape = from.variable_of(move.part);
    auto const &a = from.pieces[move.from], &b = to.pieces[move.to];
    auto rows = std::vector<std::uint32_t>(elements(move.part, shape));
    copy_out(within(a, move.part), shape_of(a, shape), Span<std::uint32_t const>{old[move.from]},
             Span<std::uint32_t>{rows});
    copy_in(within(b, move.part), shape_of(b, shape), Span<std::uint32_t const>{rows},
            Span<std::uint32_t>{now[move.to]});
  }
  return now;
}

}  // namespace

TEST_CASE("values scattered by one layout and gathered by another are the same", "[placement]") {
  for (std::uint64_t which = 0; which < 20; ++which) {
    auto const shapes = random_shapes(which);
    auto const values = values_of(shapes);
    each_sharding([&](auto const& sharding, int) {
      auto const layout = lay_out(sharding, shapes, 3);
      CHECK(gathered(layout, scattered(layout, values)) == values);
    });
  }
}

TEST_CASE("values move from any number of shards to any other with the same bits", "[placement]") {
  auto done = std::map<bool, int>{};
  for (std::uint64_t which = 0; which < 12; ++which) {
    auto const shapes = random_shapes(which);
    auto const values = values_of(shapes);
    each_sharding([&](auto const& first, int) {
      auto const from = lay_out(first, shapes, 2);
      auto const old  = scattered(from, values);
      each_sharding([&](auto const& second, int) {
        auto const to = lay_out(second, shapes, 5);
        auto now      = Contents{};
        auto direct   = true;
        try {
          now = moved(from, to, old);
        } catch (BadArgument const& error) {  // by way of whole variables
          direct = false;
          CHECK_THAT(error.what(), Catch::Contains("in one layout and along axis"));
          auto const between = lay_out(RoundRobin{}, shapes, 4);
          now                = moved(between, to, moved(from, between, old));
        }
        CHECK(now == scattered(to, values));
        ++done[direct];
      });
    });
  }
  CHECK(done[true] > 500);
  CHECK(done[false] > 500);
}

TEST_CASE("moves are in order, cover every element once, and are at most the pieces of both", "[placement]") {
  for (std::uint64_t which = 0; which < 200; ++which) {
    auto const shapes = random_shapes(which);
    auto const from   = lay_out(Partitioned<FixedShards<3>>{}, shapes, 4);
    auto const to     = lay_out(Partitioned<MaxSize<40>, GreedyByBytes>{}, shapes, 3);
    auto const all    = resharding_copies(from, to);
    CHECK(all.size() <= from.pieces.size() + to.pieces.size());
    auto next = std::vector<std::size_t>(shapes.size());
    for (auto const& move : all) {
      CHECK(move.part.along.begin == next[move.part.variable]);
      CHECK(move.part.along.size() > 0);
      CHECK(move.part.server == to.pieces[move.to].server);
      next[move.part.variable] = move.part.along.end;
    }
    for (std::size_t v = 0; v < shapes.size(); ++v)
      CHECK((next[v] == shapes[v].extent(0) || shapes[v].elements() == 0));
  }
}

TEST_CASE("layouts of other variables have no moves", "[placement]") {
  auto const a = std::vector<VariableShape>{{"a", {4}}}, b = std::vector<VariableShape>{{"a", {5}}};
  CHECK_THROWS_WITH(resharding_copies(lay_out(RoundRobin{}, a, 2), lay_out(RoundRobin{}, b, 2)),
                    Catch::Contains("two layouts of other variables: 1 and 1"));
  CHECK(resharding_copies(lay_out(RoundRobin{}, a, 2), lay_out(RoundRobin{}, a, 3)).size() == 1);
}
