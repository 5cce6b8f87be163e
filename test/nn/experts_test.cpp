// SPDX-License-Identifier: Apache-2.0
#include "test/support/axis_threads.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/one_call.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/nn/parallel/experts.hpp>
#include <chorale/tensor/axes.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace experts_test {

using namespace chorale;

namespace {

constexpr int experts = 4, width = 6, hidden = 5;
constexpr std::size_t variables = 6, rows = 23;

template <int P> using Ranks = Axis<"experts", P>;
using Token                  = nn::Of<float, width>;
using Pair                   = nn::Of<float, 2, width>;

using Tight = nn::Capacity<75>;

std::vector<float> numbers(std::size_t n, std::uint64_t stream, float scale = 1) {
  auto const random = Random{Seed{5}, stream};
  auto x            = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = random.uniform(i, -scale, scale);
  return x;
}

template <class Values> std::vector<float> some(Values const& all, std::size_t of_all, Range part) {
  auto const each = all.size() / of_all;
  return {all.begin() + static_cast<std::ptrdiff_t>(part.begin * each),
          all.begin() + static_cast<std::ptrdiff_t>(part.end * each)};
}

/// One step of all experts on one device.
template <class Layer, class In> struct OneDevice {
  test::OneCall<Layer, In> call;
  std::vector<float> x;

  explicit OneDevice(std::size_t n, float skew = 0) : x{numbers(n * In::size, 40)} {
    for (std::size_t i = 0; i < call.v.size(); ++i) call.v[i] = numbers(call.v[i].size(), i);
    for (std::size_t t = 0; t < x.size(); t += width) x[t] += skew;  // a direction that one expert likes
    call.read(n, x);
    call.forward();
    std::ranges::copy(numbers(call.dy[0].size(), 41), call.dy[0].begin());
    call.backward();
  }
};

template <template <int> class LayerOn, int P, class In> void compare(std::size_t n, bool deals_rows, float skew = 0) {
  INFO(P << " ranks, rows: " << n << ", deals rows: " << deals_rows);
  auto const one    = OneDevice<LayerOn<1>, In>{n, skew};
  auto sums         = std::vector<std::vector<float>>(P);  // of the router's gradient
  auto ranks        = test::AxisThreads{"experts", P, deals_rows};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    auto call       = test::OneCall<LayerOn<P>, In>{};
    auto const mine = deals_rows ? share(n, group.rank, P) : Range{0, n};
    for (std::size_t i = 0; i < call.v.size(); ++i) call.v[i] = test::part_of(one.call.v[i], call.specs[i], group.rank);
    call.read(mine.size(), some(one.x, n, mine));
    auto const groups = std::array{group};
    call.forward(groups);
    if (!test::equal_bits(call.y[0], some(one.call.y[0], n, mine))) throw BadArgument{"other outputs", ""};
    std::ranges::copy(some(one.call.dy[0], n, mine), call.dy[0].begin());
    call.backward();
    if (!test::equal_bits(call.dx[0], some(one.call.dx[0], n, mine))) throw BadArgument{"other gradients by x", ""};
    for (std::size_t i = 1; i < 5; ++i)
      if (!test::equal_bits(call.dv[i], test::part_of(one.call.dv[i], call.specs[i], group.rank)))
        throw BadArgument{"other gradients of variable " + std::to_string(i), ""};
    if (!deals_rows && !test::equal_bits(call.dv[0], one.call.dv[0]))
      throw BadArgument{"another gradient of the router", ""};
    if constexpr (variables == decltype(call)::specs.size())
      for (std::size_t e = 0; e < experts; ++e)
        if (call.dv[5][e] * static_cast<float>(n) != one.call.dv[5][e] * static_cast<float>(mine.size()))
          throw BadArgument{"other counts", ""};
    sums[static_cast<std::size_t>(group.rank)] = call.dv[0];
  });
  for (auto const& error : errors) CHECK(error == "");
  CHECK_FALSE(ranks.left());
  if (!deals_rows) return;
  for (std::size_t i = 0; i < sums[0].size(); ++i) {
    auto sum = 0.0F;
    for (auto const& of : sums) sum += of[i];
    CHECK(sum == Approx(one.call.dv[0][i]).epsilon(1e-4).margin(1e-5));
  }
}

template <int P> using Wide     = nn::Experts<Ranks<P>, experts, hidden, nn::Capacity<400>>;
template <int P> using Narrow   = nn::Experts<Ranks<P>, experts, hidden, Tight, nn::Balanced<10>>;
template <int P> using Switched = nn::Experts<Ranks<P>, experts, hidden, nn::Top<1>, Tight, nn::Uncounted>;

template <int P> void compare_all() {
  for (auto const deals : {true, false}) {
    compare<Wide, P, Token>(rows, deals);
    compare<Narrow, P, Pair>(rows, deals, 0.5F);
    compare<Narrow, P, Token>(3, deals);  // rows for three ranks
    compare<Switched, P, Token>(rows, deals, 0.5F);
    compare<Switched, P, Token>(1, deals);
  }
}

}  // namespace

TEST_CASE("experts on several ranks have the bits of all experts on one device", "[nn][experts]") {
  compare_all<1>();
  compare_all<2>();
  compare_all<4>();
}

TEST_CASE("experts are two dense layers each, weighted by the router, until they are full", "[nn][experts]") {
  auto const of = [](auto const& call, std::vector<float> const& x, std::size_t percent, std::size_t chosen) {
    auto const tokens = x.size() / width;
    auto const room   = (tokens * chosen * percent + 100 * experts - 1) / (100 * experts);
    auto y            = std::vector<double>(x.size());
    auto taken = std::array<std::size_t, experts>{}, dropped = taken;
    for (std::size_t t = 0; t < tokens; ++t) {
      auto p = std::array<double, experts>{};
      for (std::size_t e = 0; e < experts; ++e)
        for (std::size_t c = 0; c < width; ++c)
          p[e] += static_cast<double>(x[t * width + c]) * static_cast<double>(call.v[0][c * experts + e]);
      for (auto& q : p) q = std::exp(q);
      auto order = std::array<std::size_t, experts>{0, 1, 2, 3};
      std::ranges::sort(order, [&](auto a, auto b) { return p[a] > p[b]; });
      auto total = 0.0;
      for (std::size_t j = 0; j < (chosen == 1 ? experts : chosen); ++j) total += p[order[j]];
      for (std::size_t j = 0; j < chosen; ++j) {
        auto const e = order[j];
        if (taken[e]++ >= room) {
          ++dropped[e];
          continue;
        }
        auto h = std::array<double, hidden>{};
        for (std::size_t k = 0; k < hidden; ++k) {
          h[k] = static_cast<double>(call.v[2][e * hidden + k]);
          for (std::size_t c = 0; c < width; ++c)
            h[k] +=
                static_cast<double>(x[t * width + c]) * static_cast<double>(call.v[1][(e * width + c) * hidden + k]);
          h[k] = std::max(h[k], 0.0);
        }
        for (std::size_t c = 0; c < width; ++c) {
          auto o = static_cast<double>(call.v[4][e * width + c]);
          for (std::size_t k = 0; k < hidden; ++k)
            o += h[k] * static_cast<double>(call.v[3][(e * hidden + k) * width + c]);
          y[t * width + c] += p[e] / total * o;
        }
      }
    }
    return std::pair{y, dropped};
  };
  auto const check = [&](auto const& one, std::size_t percent, std::size_t chosen) {
    auto const [y, dropped] = of(one.call, one.x, percent, chosen);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(one.call.y[0][i] == Approx(y[i]).epsilon(1e-4).margin(1e-5));
    return dropped;
  };
  check(OneDevice<Wide<1>, Token>{rows}, 400, 2);
  check(OneDevice<Switched<1>, Token>{rows, 0.5F}, 75, 1);
  auto const one     = OneDevice<Narrow<1>, Token>{rows, 0.5F};
  auto const dropped = check(one, 75, 2);
  auto sum           = std::size_t{0};
  for (std::size_t e = 0; e < experts; ++e) {
    CHECK(one.call.dv[5][e] == static_cast<float>(rows * dropped[e]));  // times rows: see VariableSpec::tracked
    sum += dropped[e];
  }
  CHECK(sum >= 2 * rows - experts * 9);  // each has room for 9 of 46 choices
}

TEST_CASE("gradients of experts and of their router are those of differences", "[nn][experts]") {
  auto const n    = std::size_t{5};
  auto one        = OneDevice<Wide<1>, Token>{n};
  auto const loss = [&] {
    one.call.forward();
    auto sum = 0.0;
    for (std::size_t i = 0; i < one.call.y[0].size(); ++i)
      sum += static_cast<double>(one.call.y[0][i]) * static_cast<double>(one.call.dy[0][i]);
    return sum;
  };
  auto const dv    = one.call.dv;
  auto const dx    = one.call.dx;
  auto const slope = [&](float& value, float h) {
    auto const keep  = value;
    value            = keep + h;
    auto const above = loss(), up = static_cast<double>(value);
    value            = keep - h;
    auto const below = loss(), down = static_cast<double>(value);
    value = keep;
    return (above - below) / (up - down);
  };
  auto checked = 0;
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t k = 0; k < one.call.v[i].size(); k += 3) {
      CHECK(std::min(std::abs(slope(one.call.v[i][k], 4e-3F) - static_cast<double>(dv[i][k])),
                     std::abs(slope(one.call.v[i][k], 5e-4F) - static_cast<double>(dv[i][k]))) < 2e-3);
      ++checked;
    }
  for (std::size_t k = 0; k < one.x.size(); k += 2) {
    auto const with = [&](float h) {
      auto x = one.x;
      x[k] += h;
      auto const dy = one.call.dy;
      one.call.read(n, x);
      one.call.dy = dy;
      return std::pair{loss(), static_cast<double>(x[k])};
    };
    auto const error = [&](float h) {
      auto const [above, up]   = with(h);
      auto const [below, down] = with(-h);
      return std::abs((above - below) / (up - down) - static_cast<double>(dx[0][k]));
    };
    CHECK(std::min(error(4e-3F), error(5e-4F)) < 2e-3);
    ++checked;
  }
  CHECK(checked > 80);
}

TEST_CASE("a step of experts sends counts, tokens, and what comes of them", "[nn][experts]") {
  auto sent_of      = std::array<std::size_t, 2>{};
  auto const one    = OneDevice<Wide<1>, Token>{rows};
  auto ranks        = test::AxisThreads{"experts", 2, true};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    auto call       = test::OneCall<Wide<2>, Token>{};
    auto const mine = share(rows, group.rank, 2);
    for (std::size_t i = 0; i < call.v.size(); ++i) call.v[i] = test::part_of(one.call.v[i], call.specs[i], group.rank);
    call.read(mine.size(), some(one.x, rows, mine));
    auto const groups = std::array{group};
    call.forward(groups);
    call.backward();
    auto const x = some(one.x, rows, mine);  // choices of the other rank's experts
    for (std::size_t t = 0; t < mine.size(); ++t) {
      auto p = std::array<std::pair<double, int>, experts>{};
      for (std::size_t e = 0; e < experts; ++e) {
        p[e].second = static_cast<int>(e);
        for (std::size_t c = 0; c < width; ++c)
          p[e].first += static_cast<double>(x[t * width + c]) * static_cast<double>(one.call.v[0][c * experts + e]);
      }
      std::ranges::sort(p);
      for (std::size_t j = 2; j < experts; ++j)
        sent_of[static_cast<std::size_t>(group.rank)] += p[j].second / 2 != group.rank;
    }
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(sent_of[0] + sent_of[1] > 0);
  CHECK(ranks.sent(0) + ranks.sent(1) == 2 * 4 * (experts + 1) + 4 * (sent_of[0] + sent_of[1]) * width * sizeof(float));
}

namespace {

/// Rank 0 makes a step of experts; rank 1 tells it `told`, the choices of each expert and its tokens, and no more.
std::string what_rank_0_says(std::array<std::uint32_t, experts + 1> const& told, std::size_t& largest) {
  auto ranks        = test::AxisThreads{"experts", 2, true};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    if (group.rank == 1) {
      auto from = std::array<std::uint32_t, experts + 1>{};
      group.exchange(0, std::as_bytes(Span<std::uint32_t const>{told}), 0,
                     std::as_writable_bytes(Span<std::uint32_t>{from}));
      throw Error{"it ends without a word"};
    }
    auto call = test::OneCall<nn::Experts<Ranks<2>, experts, hidden>, Token>{};
    for (std::size_t i = 0; i < call.v.size(); ++i) call.v[i] = numbers(call.v[i].size(), i);
    call.read(3, numbers(3 * width, 40));
    auto const groups        = std::array{group};
    test::largest_allocation = 0;
    try {
      call.forward(groups);
    } catch (Error const&) {
      largest = test::largest_allocation;
      throw;
    }
  });
  return errors[0];
}

}  // namespace

TEST_CASE("what another rank says of its tokens is compared, and no reason to allocate as much", "[nn][experts]") {
  constexpr auto many = std::uint32_t{1} << 26;
  auto largest        = std::size_t{0};
  CHECK_THAT(what_rank_0_says({many, many, many, many, many}, largest),
             Catch::Contains("rank 1 tells rank 0 that its 67108864 tokens choose experts 268435456 times, one of them "
                             "67108864 times, where each token chooses 2 of 4 experts"));
  CHECK_THAT(what_rank_0_says({2, 0, 0, 0, 1}, largest), Catch::Contains("one of them 2 times"));
  CHECK_THAT(what_rank_0_says({many / 2, many / 2, many / 2, many / 2, many}, largest),
             Catch::Contains("rank 1 of the axis is gone"));
  CHECK(largest <= std::size_t{16} << 20);
}

}  // namespace experts_test
