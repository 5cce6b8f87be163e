// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/random.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/collective.hpp>

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace placed_test {

using namespace chorale;
using namespace chorale::placement;

static_assert(Placement<Sharded<0>> && Placement<Sharded<1>> && Placement<Partial<Op::sum>>);
static_assert(Partial<Op::sum>::copies_on(4) == 4 && Sharded<>::copies_on(4) == 1);

// 28 lines of 16 elements: 10, 9 and 9 of them; of 2 lines over 3 ranks the last has none.
static_assert(Shard{0, 3}.of(448) == Range{0, 160} && Shard{1, 3}.of(448) == Range{160, 304});
static_assert(Shard{2, 3}.of(448) == Range{304, 448} && Shard{2, 3}.of(32) == Range{32, 32});
static_assert(Shard{}.of(448) == Range{0, 448});

// Lines 1 to 12 as nodes of the tree: 1, 2-3, 4-7, 8-11, 12.
static_assert([] {
  auto expected = std::vector<SquareTree::Node>{{1, 0}, {2, 1}, {4, 2}, {8, 2}, {12, 0}};
  auto found    = std::vector<SquareTree::Node>{};
  SquareTree::each_node({1, 13}, [&](SquareTree::Node node) { found.push_back(node); });
  return found == expected && found.size() <= SquareTree::most_nodes(13);
}());
static_assert(SquareTree::root(1) == SquareTree::Node{0, 0} && SquareTree::root(28) == SquareTree::Node{0, 5});

namespace {

/// Numbers of 24 orders of magnitude, so that the order of a sum shows in its bits.
std::vector<float> numbers(std::size_t n) {
  auto x = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = std::ldexp(Random{3, 1}.uniform(i, -1, 1), static_cast<int>(i * 7 % 80) - 40);
  return x;
}

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

double norm_over(int world, Span<float const> x, Span<Range const> left_out = {}) {
  auto written = std::vector<std::vector<double>>{};
  for (int rank = 0; rank < world; ++rank) {
    auto const mine = Shard{rank, world}.of(x.size());
    auto own        = std::vector<float>(x.size(), std::numeric_limits<float>::quiet_NaN());  // others are not read
    std::copy(x.begin() + static_cast<std::ptrdiff_t>(mine.begin), x.begin() + static_cast<std::ptrdiff_t>(mine.end),
              own.begin() + static_cast<std::ptrdiff_t>(mine.begin));
    written.emplace_back(SquareTree::most_nodes(SquareTree::lines(x.size())));
    auto const n = squared_norm(Placed<Sharded<0>>{own, mine}, Span<double>{written.back()}, left_out);
    REQUIRE(n <= written.back().size());
  }
  auto read = std::vector<std::size_t>(static_cast<std::size_t>(world));
  return squared_norm_of_shards(ShardCut{x.size(), world}, read,
                                [&](int rank) { return Span<double const>{written[static_cast<std::size_t>(rank)]}; });
}

TEST_CASE("the norm of shards has the bits of the norm of the whole", "[placement][placed]") {
  for (auto const lines : std::vector<std::size_t>{1, 2, 3, 5, 28, 63, 64, 65, 1'000, 4'097}) {
    auto const x     = numbers(lines * SquareTree::line);
    auto const whole = squared_norm(Placed<Mirrored>{x});
    auto serial      = 0.0L;
    for (auto const value : x) serial += static_cast<long double>(value) * static_cast<long double>(value);
    CHECK(whole == Approx(static_cast<double>(serial)).epsilon(1e-13));
    CHECK(bits(Kernels<Cpu>::squared_norm(x)) == bits(whole));
    for (int const world : {1, 2, 3, 4, 5, 7, 16, 64}) {
      CAPTURE(lines, world);
      CHECK(bits(norm_over(world, x)) == bits(whole));
    }
  }
}

TEST_CASE("what is left out of a norm counts as zeros", "[placement][placed]") {
  auto x              = numbers(28 * SquareTree::line);
  auto const left_out = std::vector<Range>{{16, 48}, {160, 176}, {416, 448}};
  auto const with     = SquareTree::sum(x, left_out);
  for (int const world : {1, 3, 7}) CHECK(bits(norm_over(world, x, left_out)) == bits(with));
  for (auto const part : left_out)
    std::fill(x.begin() + static_cast<std::ptrdiff_t>(part.begin), x.begin() + static_cast<std::ptrdiff_t>(part.end),
              0.0F);
  CHECK(bits(SquareTree::sum(x)) == bits(with));
}

TEST_CASE("memory cut in parts, each for all ranks, has the bits of the norm of the whole", "[placement][placed]") {
  auto const parts  = std::vector<std::vector<Range>>{{{0, 224}}, {{288, 400}, {464, 512}}, {{224, 288}, {400, 464}}};
  auto const x      = numbers(512);
  auto const frozen = std::vector<Range>{{16, 208}, {304, 320}};
  for (int const world : {1, 2, 3, 5, 7, 40}) {
    auto const cut = ShardCut{parts, world};
    auto written   = std::vector<std::vector<double>>(static_cast<std::size_t>(world));
    auto held      = std::size_t{0};
    for (int rank = 0; rank < world; ++rank) {
      auto own  = std::vector<float>(cut.held(rank));
      auto last = std::size_t{0};
      for (auto const& run : cut.runs_of(rank)) {
        REQUIRE(run.at + run.range.size() <= own.size());
        auto const to = Span<float>{own}.subspan(run.at, run.range.size());
        std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(run.range.begin), run.range.size(), to.begin());
        auto& numbers = written[static_cast<std::size_t>(rank)];
        numbers.resize(last + nodes_in(run.range));
        last += squared_norm(Placed<Sharded<0>>{to, run.range, run.range.begin}, Span<double>{numbers}.subspan(last),
                             frozen);
      }
      held += cut.held(rank);
      for (std::size_t p = 0; p < parts.size(); ++p)
        CHECK(cut.shard(p, rank).size() == Shard{rank, world}.of(cut.ends(p).back()).size());
    }
    CHECK(held == 512);
    auto read = std::vector<std::size_t>(written.size());
    CAPTURE(world);
    CHECK(bits(squared_norm_of_shards(cut, read, [&](int rank) {
            return Span<double const>{written[static_cast<std::size_t>(rank)]};
          })) == bits(SquareTree::sum(x, frozen)));
  }
  CHECK_THROWS_WITH((ShardCut{{{{0, 16}}, {{32, 48}}}, 2}),
                    Catch::Contains("cover 16 elements, and go on at element 32"));
}

TEST_CASE("numbers that fill no line are counted too", "[placement][placed]") {
  auto const x = std::vector<float>{3, 4, 0, 12};
  CHECK(SquareTree::sum(x) == 169);
  CHECK(SquareTree::sum(Span<float const>{}) == 0);
  CHECK(SquareTree::sum(std::vector<float>(1'600 + 5, 1.0F)) == 1'605);
}

TEST_CASE("no rank beyond the world has a shard", "[placement][placed]") {
  CHECK_THROWS_WITH(Shard({3, 3}).of(64), Catch::Contains("rank 3 of 3 ranks has no piece"));
}

}  // namespace

}  // namespace placed_test
