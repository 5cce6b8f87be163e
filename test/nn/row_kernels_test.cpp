// SPDX-License-Identifier: Apache-2.0
//
// Kernels whose numbers of a row follow from that row alone: attention, layer normalization, products of pairs.
#include <chorale/core/random.hpp>
#include <chorale/nn/derivatives/gradient_error.hpp>
#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/interaction.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/layers/unit_norm.hpp>
#include <chorale/tensor/cpu/math.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

using namespace chorale;
using nn::Of;

namespace {

std::vector<float> numbers(std::size_t n, std::uint64_t stream) {
  auto all = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = Random{Seed{3}, stream}.uniform(i, -1, 1);
  return all;
}

/// A layer of one input without a network: forward, then backward from dy.
template <class L, class In> struct Alone {
  using Out = decltype(L::output(In{}));

  std::size_t rows;
  std::vector<float> y = std::vector<float>(rows * Out::size), dx = std::vector<float>(rows * In::size);
  std::vector<float> d_variables, kept                            = std::vector<float>(rows * L::kept(In{}));

  void run(std::vector<float> x, std::vector<float> dy, std::vector<float> variables) {
    auto at = nn::Place<L, nn::detail::List<In>, nn::detail::List<Out>>{.rows = rows};
    d_variables.assign(variables.size(), 0.0F);
    std::get<0>(at.in)  = x;
    std::get<0>(at.out) = y;
    at.d_in[0] = dx, at.d_out[0] = dy, at.kept = kept;
    for (std::size_t i = 0, begin = 0; i < at.specs.size(); begin += at.specs[i++].size()) {
      at.v[i]  = Span<float>{variables}.subspan(begin, at.specs[i].size());
      at.dv[i] = Span<float>{d_variables}.subspan(begin, at.specs[i].size());
    }
    L::forward(at);
    L::backward(at);
  }
};

/// Attention by its definition, in double: y and dx of one row.
struct Attention {
  Attention(bool causal, std::size_t steps, std::size_t heads, std::size_t width, float const* x, float const* dy)
      : y(steps * heads * width), dx(3 * y.size()) {
    auto const c   = heads * width;
    auto const at  = [&](std::size_t part, std::size_t t, std::size_t h) { return t * 3 * c + part * c + h * width; };
    auto const dot = [&](float const* a, float const* b) {
      auto sum = 0.0;
      for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      return sum;
    };
    auto const scale = 1 / std::sqrt(static_cast<double>(width));
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < steps; ++t) {
        auto const seen = causal ? t + 1 : steps;
        auto p = std::vector<double>(seen), dp = p;
        auto z = 0.0, mean = 0.0;
        auto const* const d = dy + t * c + h * width;
        for (std::size_t u = 0; u < seen; ++u) z += p[u] = std::exp(scale * dot(x + at(0, t, h), x + at(1, u, h)));
        for (std::size_t u = 0; u < seen; ++u) p[u] /= z, dp[u] = dot(d, x + at(2, u, h)), mean += p[u] * dp[u];
        for (std::size_t u = 0; u < seen; ++u)
          for (std::size_t i = 0; i < width; ++i) {
            auto const ds = scale * p[u] * (dp[u] - mean);
            y[t * c + h * width + i] += p[u] * static_cast<double>(x[at(2, u, h) + i]);
            dx[at(0, t, h) + i] += ds * static_cast<double>(x[at(1, u, h) + i]);
            dx[at(1, u, h) + i] += ds * static_cast<double>(x[at(0, t, h) + i]);
            dx[at(2, u, h) + i] += p[u] * static_cast<double>(d[i]);
          }
      }
  }

  std::vector<double> y, dx;
};

double largest_difference(std::vector<float> const& a, std::vector<double> const& b) {
  auto most = a.size() == b.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

template <class L, int Steps> void compare_attention() {
  auto const x = numbers(Steps * 24, 1), dy = numbers(Steps * 8, 2);
  auto ours = Alone<L, Of<float, Steps, 24>>{.rows = 1};
  ours.run(x, dy, {});
  auto const exact = Attention{L::name == "causal_heads", Steps, 2, 4, x.data(), dy.data()};
  CHECK(largest_difference(ours.y, exact.y) < 1e-6);
  CHECK(largest_difference(ours.dx, exact.dx) < 4e-6);
}

/// The second of three rows alone has the bits that it has among them.
template <class L, class In> void compare_rows() {
  using One    = Alone<L, In>;
  auto const x = numbers(3 * In::size, 4), dy = numbers(3 * One::Out::size, 5), v = numbers(1000, 6);
  auto const part = [](std::vector<float> const& all) {
    auto const n = static_cast<std::ptrdiff_t>(all.size() / 3);
    return std::vector<float>(all.begin() + n, all.begin() + 2 * n);
  };
  auto three = One{.rows = 3}, one = One{.rows = 1};
  three.run(x, dy, v);
  one.run(part(x), part(dy), v);
  CHECK(one.y == part(three.y));
  CHECK(one.dx == part(three.dx));
}

}  // namespace

TEST_CASE("the exponential function of vector loops is exact to 1e-7, and says 0, a NaN or a large number at the ends",
          "[nn][kernels]") {
  auto worst = 0.0;
  for (float x = -87.2F; x < 87.3F; x += 0.0013F)
    worst = std::max(worst, std::abs(static_cast<double>(cpu::exp(x)) / std::exp(static_cast<double>(x)) - 1));
  CHECK(worst < 1e-7);
  CHECK(cpu::exp(0.0F) == 1.0F);
  CHECK(cpu::exp(-87.4F) == 0.0F);
  CHECK(cpu::exp(-std::numeric_limits<float>::infinity()) == 0.0F);
  CHECK(cpu::exp(std::numeric_limits<float>::infinity()) > 8e37F);
  CHECK(std::isnan(cpu::exp(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(cpu::exp(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("softmax, sums and the largest of rows of any length are those of their definitions", "[nn][kernels]") {
  for (std::size_t const n : {1U, 2U, 15U, 16U, 17U, 33U, 65U}) {
    auto const x = numbers(n, n);
    auto p       = std::vector<float>(n);
    auto z       = 0.0;
    for (auto const v : x) z += std::exp(static_cast<double>(v));
    CHECK(cpu::softmax(n, x.data(), p.data()) == Approx(std::log(z)).margin(1e-6));
    for (std::size_t i = 0; i < n; ++i) CHECK(p[i] == Approx(std::exp(static_cast<double>(x[i])) / z).epsilon(1e-6));
    CHECK(cpu::sum_of(n, [&](std::size_t i) { return p[i]; }) == Approx(1));
    CHECK(cpu::largest(n, x.data()) == *std::max_element(x.begin(), x.end()));
  }
}

TEST_CASE("attention is what its definition says, for sequences of one block and of several", "[nn][kernels]") {
  compare_attention<nn::CausalHeads<2>, 7>();
  compare_attention<nn::CausalHeads<2>, 100>();
  compare_attention<nn::CausalHeads<2>, 200>();  // probabilities are computed again
  compare_attention<nn::Heads<2>, 7>();
  compare_attention<nn::Heads<2>, 100>();
  compare_attention<nn::Heads<2>, 200>();
}

TEST_CASE("a row's numbers do not depend on the rows beside it", "[nn][kernels]") {
  compare_rows<nn::CausalHeads<2>, Of<float, 40, 24>>();
  compare_rows<nn::Heads<2>, Of<float, 40, 24>>();
  compare_rows<nn::LayerNorm, Of<float, 5, 37>>();
}

TEST_CASE("vectors become of length 1, and one of zeros stays so, without a gradient", "[nn][kernels]") {
  auto alone = Alone<nn::UnitNorm, Of<float, 2, 2>>{.rows = 1};
  alone.run({3, 4, 0, 0}, {1, 0, 1, 1}, {});
  CHECK(largest_difference(alone.y, {0.6, 0.8, 0, 0}) < 1e-7);
  CHECK(largest_difference(alone.dx, {0.64 / 5, -0.48 / 5, 0, 0}) < 1e-7);
}

TEST_CASE("interaction gives the products of pairs in their order, and their gradients", "[nn][kernels]") {
  using Pair   = nn::detail::List<Of<float, 2>, Of<float, 2>, Of<float, 2>>;
  auto const a = std::vector<float>{1, 2}, b = std::vector<float>{3, 4}, c = std::vector<float>{5, 6};
  auto y = std::vector<float>(3), da = std::vector<float>(2), dc = da, dy = std::vector<float>{1, 10, 100};
  auto at = nn::Place<nn::Interaction, Pair, nn::detail::List<Of<float, 3>>>{.rows = 1};
  at.in = {a, b, c}, std::get<0>(at.out) = y;
  at.d_in = {da, {}, dc}, at.d_out[0] = dy;  // nobody asks for the gradient by b
  nn::Interaction::forward(at);
  nn::Interaction::backward(at);
  CHECK(y == std::vector<float>{11, 17, 39});  // b·a, c·a, c·b
  CHECK(da == std::vector<float>{3 + 50, 4 + 60});
  CHECK(dc == std::vector<float>{10 + 300, 20 + 400});
  CHECK(nn::gradient_error<nn::Interaction, Of<float, 9>, Of<float, 9>, Of<float, 9>>() < 1e-3);
}
