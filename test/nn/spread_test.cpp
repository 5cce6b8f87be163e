// SPDX-License-Identifier: Apache-2.0
//
// Distribution types on values of a network: what they become, conversions over threads beside the interpreter of
// rank_programs.hpp, and a network that is split over ranks beside itself on one.
#include <chorale/device/cpu.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/parallel/split_dense.hpp>
#include <chorale/nn/parallel/split_sequence.hpp>
#include <chorale/nn/parallel/spread.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/variable.hpp>

#include <catch2/catch.hpp>

#include "test/nn/rank_programs.hpp"
#include "test/support/axis_threads.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace spread_test {

using namespace chorale;
namespace ranks = chorale::test::ranks;
using nn::Distribution, nn::distribution::Change, nn::distribution::Like;

namespace {

using T = Axis<"tensor", 2>;
using C = Axis<"context", 2>;

/// A layer that is split, with a statement of its own: y = x W for half of the columns of W.
struct Halves : nn::Layer<Halves> {
  using axis                             = T;
  static constexpr std::string_view name = "halves";
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == nn::replicated ? std::optional{nn::sharded<-1>} : std::nullopt;
  }
  template <int... D> static constexpr auto output(nn::Of<float, D...> x) {
    return nn::WithBack<nn::Of<float, D...>, x.back / 2>{};
  }
  static constexpr auto variables(auto x) { return std::array{nn::glorot_uniform("kernel", x.back, x.back / 2)}; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};
/// One that does something else in a way of its own.
struct Doubled : nn::Layer<Doubled> {
  static constexpr std::string_view name = "doubled";
  static constexpr auto spreads_as       = nn::SpreadsAs{nn::distribution::Operation::linear, 0};
  static constexpr auto output(auto x) { return x; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

template <class A> constexpr Distribution along(auto x) { return nn::spread_along<A>(x); }

struct X : Field<float, 4, 6> {};
struct Y : Field<float, 4, 6> {};
struct Z : Field<float, 4, 4> {};

/// A network of which only the types are of interest.
struct Types : nn::Graph<X> {
  nn::Dense<6> in;
  Halves halves;

  constexpr auto operator()(auto x) const {
    auto const h = nn::gelu(in(x));
    static_assert(std::is_same_v<decltype(h), decltype(x) const>);  // nothing is added where nothing is split
    auto const r = nn::replicate<T>(h);
    static_assert(along<T>(decltype(r){}) == nn::replicated && along<C>(decltype(r){}) == nn::invariant);
    auto const s = halves(r);
    static_assert(along<T>(decltype(s){}) == nn::sharded<1>);
    static_assert(along<T>(decltype(nn::gelu(s)){}) == nn::sharded<1>);
    auto const both = nn::scatter<C, 0>(nn::scatter<T, 1>(h));
    static_assert(along<T>(decltype(both){}) == nn::sharded<1> && along<C>(decltype(both){}) == nn::sharded<0>);
    static_assert(std::is_same_v<nn::detail::OwnOf<typename decltype(both)::of>, nn::Of<float, 2, 3>>);
    static_assert(std::is_same_v<decltype(nn::all_gather<C>(nn::all_gather<T>(both))), decltype(h + h)>);
    auto const part = nn::dot(nn::scatter<T, 1>(r), s);
    static_assert(along<T>(decltype(part){}) == nn::partial);
    static_assert(along<T>(decltype(Doubled{}(part)-part){}) == nn::partial);
    static_assert(along<T>(decltype(nn::average(part, part, part)){}) == nn::partial);
    static_assert(along<T>(decltype(part * nn::all_reduce<T, nn::replicated>(part)){}) == nn::partial);
    static_assert(along<T>(decltype(nn::concatenate(part, nn::pad<T>(nn::scatter<T, 0>(h)))){}) == nn::partial);
    static_assert(along<T>(decltype(nn::softmax(nn::reduce_scatter<T, 0>(part))){}) == nn::sharded<0>);
    static_assert(along<T>(decltype(nn::all_to_all<T, 1>(nn::reduce_scatter<T, 0>(part))){}) == nn::sharded<1>);
    static_assert(along<T>(decltype(nn::maximum(nn::vary<T>(r), r)){}) == nn::varying);
    static_assert(along<T>(decltype(nn::reshape<24>(r)){}) == nn::replicated);
    static_assert(along<T>(decltype(nn::slice<0, 2>(nn::scatter<T, 0>(r))){}) == nn::sharded<0>);
    auto const y = h + nn::all_reduce<T>(nn::as_parts<T>(nn::vary<T>(r)));
    static_assert(along<T>(decltype(y){}) == nn::invariant);
    return nn::outputs<Y, Z>(r, nn::all_reduce<T>(part));  // R becomes I
  }
};
static_assert(nn::plan_of<Types>.parameters == 6 * 6 + 6 + 6 * 3);

struct Long : Field<float, 4, 8> {};

/// Layers that are split, and conversions of what they give.
struct Mixed : nn::Graph<Long> {
  nn::ColumnDense<T, 16> widen;
  nn::RowDense<T, 8> narrow;
  nn::LayerNorm norm;

  constexpr auto operator()(auto x) const {
    auto const h = nn::gelu(widen(x));
    static_assert(along<T>(decltype(h){}) == nn::sharded<1>);
    auto const y = x + narrow(h);
    static_assert(along<T>(decltype(y){}) == nn::invariant);
    auto const s = norm(nn::scatter_sequence<T>(y));
    static_assert(along<T>(decltype(s){}) == nn::sharded<0>);
    auto const all = nn::slice<0, 8>(nn::all_gather<T>(h));
    static_assert(along<T>(decltype(all){}) == nn::invariant);
    auto const z = nn::gather_sequence<T>(s) + all + nn::all_gather<T>(norm(nn::scatter<T, 0>(y)));
    return nn::outputs<Long>(z + narrow(nn::scatter<T, 1>(nn::concatenate(z, z))));
  }
};
static_assert(nn::plan_of<Mixed>.parameters == 8 * 8 + 8 + 8 * 8 + 8 + 2 * 8);

/// Shape of what a rank has of rows of n x n.
template <Distribution as, int n, int size>
using LocalOf = nn::Of<float, (as == nn::sharded<0> ? n / size : n), (as == nn::sharded<1> ? n / size : n)>;

/// One conversion, forward and backward, over threads.
template <int size, Change change, Distribution from, Distribution to> void convert_one() {
  using A             = Axis<"tensor", size>;
  using L             = nn::detail::Convert<change, A, from, to>;
  using In            = LocalOf<from, size == 3 ? 6 : 4, size>;
  using Out           = decltype(L::output(In{}));
  using Here          = nn::Place<L, nn::detail::List<In>, nn::detail::List<Out>>;
  constexpr auto rows = std::size_t{2};
  auto const drawn    = [](auto of, unsigned seed) {
    auto all = std::vector<ranks::Matrices>(rows);
    for (auto& row : all)
      for (int r = 0; r < size; ++r) row.push_back(ranks::drawn(of.dims[0], of.dims[1], seed++));
    return all;
  };
  auto const flat = [](auto const& all, Rank r) {
    auto y = std::vector<float>{};
    for (auto const& row : all) {
      auto const& m = row[static_cast<std::size_t>(r)];
      for (int i = 0; i < m.rows; ++i)
        for (int j = 0; j < m.columns; ++j) y.push_back(static_cast<float>(m.at(i, j)));
    }
    return y;
  };
  auto const x = drawn(In{}, 1), dy = drawn(Out{}, 99);
  auto y = std::vector<ranks::Matrices>{}, dx = y;
  for (std::size_t b = 0; b < rows; ++b) {
    y.push_back(ranks::converted(change, from, to, x[b]));
    dx.push_back(ranks::converted(L::backward_change, dual(to), dual(from), dy[b]));
  }
  auto threads = test::AxisThreads{"tensor", size};
  auto wrong   = std::array<int, size>{};
  threads.run([&](AxisGroup const& group) {
    auto in = flat(x, group.rank), d_out = flat(dy, group.rank);
    auto out = std::vector<float>(rows * Out::size), d_in = std::vector<float>(rows * In::size);
    auto kept = std::vector<float>(rows * L::kept(In{}));
    auto at   = Here{.rows  = rows,
                     .in    = {in},
                     .out   = {out},
                     .d_in  = {Span<float>{d_in}},
                     .d_out = {Span<float>{d_out}},
                     .kept  = kept,
                     .axes  = {&group, 1}};
    L::forward(at);
    L::backward(at);
    wrong[static_cast<std::size_t>(group.rank)] = (out != flat(y, group.rank)) + 2 * (d_in != flat(dx, group.rank));
  });
  INFO(nn::distribution::text_of(change) << " of " << text_of(from) << " to " << text_of(to) << " over " << size);
  CHECK(wrong == std::array<int, size>{});
}

constexpr bool is_sharded(Like of) { return of == Like::sharded; }

/// All conversions over so many ranks.
template <int size> void convert_all() {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (
        [&] {
          constexpr auto way  = nn::distribution::conversions[I];
          constexpr auto made = [](Like like, int dim) { return nn::distribution::made(like, dim); };
          convert_one<size, way.change, made(way.from, 0), made(way.to, way.change == Change::all_to_all ? 1 : 0)>();
          if constexpr (is_sharded(way.from) || is_sharded(way.to))
            convert_one<size, way.change, made(way.from, 1), made(way.to, way.change == Change::all_to_all ? 0 : 1)>();
        }(),
        ...);
  }(std::make_index_sequence<nn::distribution::conversions.size()>{});
}

struct Wide : Field<float, 4, 12> {};
struct Narrow : Field<float, 4, 3> {};
struct Square : Field<float, 4, 4> {};

/// A network over so many ranks.
template <int size> struct Split : nn::Graph<nn::Differentiable<Wide>> {
  using A = Axis<"tensor", size>;
  nn::Dense<12> in;
  nn::Dense<3> out;

  constexpr auto operator()(auto x) const {
    auto const h     = nn::gelu(in(x));                                // (B, 4, 12) I
    auto const r     = nn::replicate<A>(h);                            // R
    auto const mine  = nn::tanh(nn::scatter<A, 1>(r));                 // (B, 4, 12 / size) S<1>
    auto const part  = nn::dot(mine, nn::scatter<A, 1>(x));            // (B, 4, 4) P
    auto const soft  = nn::softmax(nn::reduce_scatter<A, 0>(part));    // (B, 4 / size, 4) S<0>
    auto const whole = nn::all_gather<A>(nn::all_to_all<A, 1>(soft));  // (B, 4, 4) I
    auto const more  = part + nn::on_one_rank<A>(whole);               // P
    auto const again = nn::all_reduce<A, nn::replicated>(more);        // R
    auto const last  = nn::all_reduce<A>(more * again);                // I
    return nn::outputs<Narrow, Square>(out(last), again);
  }
};

/// Outputs and gradients of each rank.
template <int size> std::vector<std::vector<float>> computed() {
  using Net                 = Split<size>;
  constexpr auto const& net = nn::plan_of<Net>;
  auto threads              = test::AxisThreads{"tensor", size};
  auto results              = std::vector<std::vector<float>>(static_cast<std::size_t>(size));
  threads.run([&](AxisGroup const& group) {
    constexpr int rows = 2;
    auto const fill    = [](Span<float> x, std::size_t seed) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7 + seed * 3) % 11) / 10.0F - 0.5F;
    };
    auto values = std::vector<float>(PlanView{net}.values()), gradients = values;
    for (std::size_t v = 0; v < net.variables.size(); ++v)
      fill(Span<float>{values}.subspan(net.variables[v].offset, net.variables[v].size), v);
    auto tables = row_gradients_of(net);
    auto x      = std::vector<float>(rows * 4 * 12);
    fill(x, 5);
    auto executor = nn::GraphExecutor<Net, Cpu>{rows, values, gradients, tables, {}, {}};
    executor.read(0, x.data());
    auto const pass = Pass{.training = true, .axes = {&group, 1}};
    executor.forward(pass);
    auto& all      = results[static_cast<std::size_t>(group.rank)];
    auto const add = [&](float const* from, std::size_t n) { all.insert(all.end(), from, from + n); };
    for (std::size_t o = 0; o < 2; ++o) {
      add(executor.output(o), executor.size(o));
      fill(Span<float>{executor.d_output(o), executor.size(o)}, o);
    }
    executor.backward(pass, LooksAtEnd{});
    for (auto const& v : net.variables) add(&gradients[v.offset], v.size);
    add(executor.d_input(0), x.size());
  });
  return results;
}

double largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])) / std::max(1.0F, std::abs(b[i])));
  return worst;
}

}  // namespace

TEST_CASE("each conversion of distribution types does what its rule says, and its backward too", "[nn][distribution]") {
  convert_all<1>();
  convert_all<2>();
  convert_all<3>();
  convert_all<4>();
}

TEST_CASE("a network with distribution types computes over 2 and 4 ranks what it computes on one",
          "[nn][distribution]") {
  auto const one = computed<1>()[0];
  CHECK(std::any_of(one.begin(), one.end(), [](float x) { return x != 0; }));
  for (auto const& rank : computed<2>()) CHECK(largest_difference(rank, one) < 1e-5);
  for (auto const& rank : computed<4>()) CHECK(largest_difference(rank, one) < 1e-5);
}

}  // namespace spread_test
