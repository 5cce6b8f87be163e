// SPDX-License-Identifier: Apache-2.0
#include "test/support/axis_threads.hpp"

#include <chorale/tensor/axis_collectives.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace axis_collectives_test {

using namespace chorale;

namespace {

/// Number i of a rank; sums of them depend on the order.
float number(Rank r, std::size_t i) {
  auto const bits = (static_cast<std::uint32_t>(r) * 7919U + static_cast<std::uint32_t>(i) * 104'729U) * 2'654'435'761U;
  return static_cast<float>(bits >> 8U) * 0x1p-20F - 7;
}
std::vector<float> numbers(Rank r, std::size_t n) {
  auto x = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = number(r, i);
  return x;
}
/// The sum of ranks [first, first + n) of number i, as the tree is drawn at left_of_tree.
float tree(Rank first, int n, std::size_t i) {
  if (n == 1) return number(first, i);
  auto const left = along::left_of_tree(n);
  return tree(first, left, i) + tree(first + left, n - left, i);
}

}  // namespace

TEST_CASE("sums over an axis are those of one tree, to the bit, on all ranks", "[tensor][axis]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 8);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 7, 1000, 5003);
  auto group       = test::AxisThreads{"tensor", ranks};
  auto sums        = std::vector<std::vector<float>>(static_cast<std::size_t>(ranks));
  auto pieces      = sums;
  group.run([&](AxisGroup const& at) {
    auto scratch = std::vector<float>(along::scratch_for(n, ranks));
    auto x       = numbers(at.rank, n);
    auto own     = std::vector<float>(share(n, at.rank, ranks).size());
    along::reduce_scatter(at, Span<float const>{x}, Span<float>{own}, Span<float>{scratch});
    along::all_reduce(at, Span<float>{x}, Span<float>{scratch});
    sums[static_cast<std::size_t>(at.rank)]   = x;
    pieces[static_cast<std::size_t>(at.rank)] = own;
  });
  auto wanted = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) wanted[i] = tree(0, ranks, i);
  auto joined = std::vector<float>{};
  for (auto const& piece : pieces) joined.insert(joined.end(), piece.begin(), piece.end());
  for (auto const& sum : sums) CHECK(sum == wanted);
  CHECK(joined == wanted);
}

TEST_CASE("a reduction takes another function than the sum", "[tensor][axis]") {
  auto group   = test::AxisThreads{"tensor", 3};
  auto largest = std::vector<std::vector<float>>(3);
  group.run([&](AxisGroup const& at) {
    auto x       = std::vector<float>{static_cast<float>(at.rank), static_cast<float>(-at.rank)};
    auto scratch = std::vector<float>(along::scratch_for(x.size(), 3));
    along::all_reduce(at, Span<float>{x}, Span<float>{scratch}, along::Largest{});
    largest[static_cast<std::size_t>(at.rank)] = x;
  });
  for (auto const& x : largest) CHECK(x == std::vector<float>{2, 0});
}

TEST_CASE("pieces come to all ranks, to each rank and around the ring", "[tensor][axis]") {
  auto const ranks = GENERATE(1, 2, 3, 4);
  auto group       = test::AxisThreads{"tensor", ranks};
  auto good        = std::vector<int>(static_cast<std::size_t>(ranks));
  group.run([&](AxisGroup const& at) {
    auto const n  = std::size_t{11};
    auto all      = std::vector<float>(n);
    auto const of = share(n, at.rank, ranks);
    auto const x  = numbers(9, n);
    along::all_gather(at, Span<float const>{x}.subspan(of.begin, of.size()), Span<float>{all});
    auto is_good = all == x;

    auto to = std::vector<std::size_t>{}, from = to;  // rank r sends rank s r + 2 s ids: 100 r + s
    auto out = std::vector<int>{}, wanted = out;
    for (Rank r = 0; r < ranks; ++r) {
      to.push_back(static_cast<std::size_t>(at.rank + 2 * r)),
          from.push_back(static_cast<std::size_t>(r + 2 * at.rank));
      out.insert(out.end(), to.back(), 100 * at.rank + r), wanted.insert(wanted.end(), from.back(), 100 * r + at.rank);
    }
    auto in = std::vector<int>(wanted.size());
    along::all_to_all(at, Span<int const>{out}, to, Span<int>{in}, from);
    is_good = is_good && in == wanted;

    for (int by = -1; by < 3; ++by) {
      auto const mine = std::vector<double>{1.5 * at.rank, 2};
      auto got        = std::vector<double>(2);
      along::shift(at, by, Span<double const>{mine}, Span<double>{got});
      is_good = is_good && got == std::vector<double>{1.5 * ((at.rank - by + 3 * ranks) % ranks), 2};
    }
    good[static_cast<std::size_t>(at.rank)] = is_good ? 1 : 0;
  });
  CHECK(good == std::vector<int>(static_cast<std::size_t>(ranks), 1));
}

TEST_CASE("a rank sends what the formulas say", "[tensor][axis]") {
  auto const ranks = GENERATE(2, 4);
  auto const n     = std::size_t{4096};
  auto const bytes = n * sizeof(float), most = static_cast<std::size_t>(ranks);
  auto group = test::AxisThreads{"tensor", ranks};
  group.run([&](AxisGroup const& at) {
    auto x = numbers(at.rank, n), scratch = std::vector<float>(along::scratch_for(n, ranks));
    along::all_reduce(at, Span<float>{x}, Span<float>{scratch});
  });
  for (Rank r = 0; r < ranks; ++r) CHECK(group.sent(r) == 2 * bytes * (most - 1) / most);
}

TEST_CASE("an operation between ranks refuses memory that does not fit", "[tensor][axis]") {
  auto const group = AxisGroup{.name = "tensor", .rank = 1, .size = 2};
  auto x           = std::vector<float>(10);
  CHECK_THROWS_WITH(along::all_gather(group, Span<float const>{x}.first(4), Span<float>{x}),
                    Catch::Contains("4 elements of rank 1, whose piece of 10 has 5"));
  CHECK_THROWS_WITH(along::reduce_scatter(group, Span<float const>{x}, Span<float>{x}.first(5), {}),
                    Catch::Contains("0 numbers of scratch"));
}

}  // namespace axis_collectives_test
