// SPDX-License-Identifier: Apache-2.0
//
// What the compiler computes from a network's call operator: layers, variables, plans, schedules.
#include "test/support/graph_nets.hpp"

#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/networks/resnet.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>

using namespace chorale;
using namespace chorale::test::graph_nets;

namespace {

struct X : Field<float, 784> {};
struct Small : Field<float, 8> {};
struct Y : Field<int, 1> {};

/// A Graph around the layers of a Sequential.
template <class In, class... L> struct Around : nn::Graph<In> {
  nn::Block<L...> layers;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(layers(x)); }
};

template <class In, class Shape, class... L>
constexpr bool plans_agree = [] {
  struct Listed : nn::Sequential<Shape, L...> {};
  constexpr auto const& a = Listed::plan;
  constexpr auto const& b = nn::plan_of<Around<In, L...>>;
  return a.hash == b.hash && a.buckets == b.buckets && a.elements == b.elements && a.parameters == b.parameters &&
         a.activations_per_row == b.activations_per_row && a.products_per_row == b.products_per_row;
}();

constexpr auto with_a_temporary(auto x) { return nn::Dense<8>{}(x); }
constexpr auto with_a_local(auto x) {
  nn::Dense<8> layer;
  return layer(layer(x));
}

struct Identities : nn::Graph<Small> {
  nn::Dense<8> member, never_called;
  constexpr auto operator()(auto x) const {
    for (int i = 0; i < 3; ++i) x = with_a_temporary(x);
    x = with_a_local(with_a_local(x));
    return nn::outputs<Y>(member(member(x)));
  }
};

struct Named : nn::Graph<Small> {
  nn::Dense<8> a, b, c{"head"};
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(c(norm(b(a(x))))); }
};

struct Long : Field<int, 128> {};
struct LongNext : Field<int, 128> {};
using Gpt2Small = Gpt2<Long, LongNext, 12, 768, 12, 50257, 1024>;
using Deep      = Gpt2<Long, LongNext, 96, 768, 12, 50257, 1024>;

template <class Net> using Low = nn::graph::Lowered<Net, Cpu>;

std::string name_of(auto const& plan, std::size_t i) { return std::string{std::string_view{plan.variables[i].name}}; }

}  // namespace

TEST_CASE("a Graph around a Block has the plan of the Sequential of its layers", "[nn][graph][plan]") {
  using nn::Dense, nn::Input, nn::ReLU, nn::Residual, nn::Tanh, nn::Conv2D, nn::MaxPool2D, nn::Flatten, nn::Shortcut;
  STATIC_REQUIRE(plans_agree<X, Input<784>, Dense<512>, ReLU, Dense<256>, ReLU, Dense<10>>);
  STATIC_REQUIRE(plans_agree<X, Input<784>, nn::Repeat<3, Dense<64>, ReLU>, nn::Dropout<20>, Dense<10>, nn::Softmax>);
  struct Image : Field<float, 28, 28, 1> {};
  STATIC_REQUIRE(plans_agree<Image, Input<28, 28, 1>, Flatten, Dense<64>, nn::GELU, Dense<10>>);
  STATIC_REQUIRE(plans_agree<X, Input<784>, Dense<64>, Residual<Dense<64>, Tanh, Dense<64>>,
                             Residual<Dense<32>, Shortcut<Dense<32>>>, Dense<10>>);
}

TEST_CASE("an object is one layer, and a temporary is another one at each call", "[nn][graph]") {
  STATIC_REQUIRE(Low<Identities>::counts.layers == 6);
  STATIC_REQUIRE(Low<Identities>::counts.calls == 9);
  STATIC_REQUIRE(Low<Identities>::counts.variables == 12);
  STATIC_REQUIRE(nn::plan_of<Identities>.parameters == 6 * 72);
}

TEST_CASE("layers are numbered as in Keras, unless they were given a name", "[nn][graph]") {
  auto const& plan = nn::plan_of<Named>;
  CHECK(name_of(plan, 0) == "dense/kernel");
  CHECK(name_of(plan, 3) == "dense_1/bias");
  CHECK(name_of(plan, 4) == "layer_normalization/gamma");
  CHECK(name_of(plan, 6) == "head/kernel");
}

TEST_CASE("GPT-2 has its number of parameters, with the head tied to the table of words", "[nn][graph][plan]") {
  STATIC_REQUIRE(nn::plan_of<Gpt2Small>.parameters == 124'439'808);
  STATIC_REQUIRE(Low<Gpt2Small>::counts.variables == 148);
  CHECK(name_of(nn::plan_of<Gpt2Small>, 0) == "wte/embeddings");
}

TEST_CASE("gradients of 12 blocks need three buffers at a time", "[nn][graph]") {
  STATIC_REQUIRE(Low<Gpt2Small>::slots() == 3);
}

TEST_CASE("96 blocks compile with the default limits", "[nn][graph]") {
  STATIC_REQUIRE(Low<Deep>::counts.variables == 1156);
  STATIC_REQUIRE(Low<Deep>::slots() == 3);
}

TEST_CASE("gradients become final in ascending order, a shared variable's after its last use", "[nn][graph]") {
  using Net        = Low<Gpt2Small>;
  auto const steps = nn::graph::Scheduler{Net::calls, Net::trains}.schedule().steps;
  auto ends        = std::vector<std::size_t>{};
  for (auto const& step : steps)
    if (step.what == nn::graph::Do::ready)
      ends.push_back(nn::plan_of<Gpt2Small>.ready[static_cast<std::size_t>(step.call)]);
  CHECK(std::is_sorted(ends.begin(), ends.end()));
  CHECK(steps.back().what == nn::graph::Do::ready);
  CHECK(steps.back().call == 0);
}
