// SPDX-License-Identifier: Apache-2.0
#include "test/support/tiny.hpp"

#include <chorale/tensor/run_time_plan.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace chorale;

// The plan is a constexpr value: these hold, or this file does not compile.
static_assert(tiny::LeNet::plan.parameters == 320 + 346'176 + 650);  // Keras' Total params: 347,146
static_assert(tiny::LeNet::plan.buckets == 2);
static_assert(tiny::LeNet::plan.bytes_per_step() == tiny::LeNet::plan.elements * 4);
static_assert(tiny::LeNet::plan.arena_bytes(2) == 4 * tiny::LeNet::plan.bytes_per_step());
static_assert(tiny::LeNet::output::size == 10);

namespace {
struct Wider : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<65>, nn::ReLU, nn::Dense<10>> {};
struct Twin : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                             nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};
struct Shapes : nn::Sequential<nn::Input<7, 9, 2>, nn::Conv2D<4, 3, nn::Same, nn::Stride<2>>, nn::AveragePool2D<2>,
                               nn::Flatten, nn::Dense<5>> {};
}  // namespace

static_assert(Twin::plan.hash == tiny::LeNet::plan.hash);
static_assert(Wider::plan.hash != tiny::LeNet::plan.hash);
static_assert(Shapes::plan.variables[2].spec.dims[0] == 2 * 2 * 4);  // ceil(7/2) x ceil(9/2) = 4 x 5, halved: 2 x 2

TEST_CASE("variables have Keras' names, in reading order", "[tensor][plan]") {
  auto names = std::vector<std::string>{};
  for (auto const& v : tiny::LeNet::plan.variables) names.emplace_back(std::string_view{v.name});
  CHECK(names == std::vector<std::string>{"conv2d/kernel", "conv2d/bias", "dense/kernel", "dense/bias",
                                          "dense_1/kernel", "dense_1/bias"});
}

TEST_CASE("variables do not overlap, are aligned, and the last layer comes first", "[tensor][plan]") {
  auto const& plan = tiny::LeNet::plan;
  for (auto const& a : plan.variables) {
    CHECK(a.offset >= plan::header);
    CHECK(a.offset % plan::align == 0);
    CHECK(a.end() <= plan.elements);
    for (auto const& b : plan.variables) CHECK((&a == &b || a.end() <= b.offset || b.end() <= a.offset));
  }
  CHECK(plan.variables[4].offset == plan::header);
  CHECK(plan.variables[0].offset > plan.variables[2].offset);
}

TEST_CASE("buckets cover the gradients, close in order, and each but the last is large enough", "[tensor][plan]") {
  auto const ends = tiny::LeNet::plan.ends();
  CHECK(std::is_sorted(ends.begin(), ends.end()));
  CHECK(ends.back() == tiny::LeNet::plan.elements);
  auto begin = std::size_t{0};
  for (std::size_t i = 0; i + 1 < ends.size(); begin = ends[i++]) CHECK((ends[i] - begin) * 4 >= plan::bucket_bytes);
}

TEST_CASE("a plan prints as a table", "[tensor][plan]") {
  auto text = std::ostringstream{};
  text << tiny::LeNet::plan;
  CHECK(text.str().find("dense/kernel  (5408, 64)  346112 float32 at 672\n") != std::string::npos);
  CHECK(text.str().find("347146 parameters, 2 buckets, 1388736 bytes reduced per step") != std::string::npos);
}

TEST_CASE("a plan is lines that ranks compare", "[tensor][plan]") {
  CHECK(lines_of(tiny::LeNet::plan) == std::vector<std::string>{"conv2d/kernel f32[3,3,1,32]", "conv2d/bias f32[32]",
                                                                "dense/kernel f32[5408,64]", "dense/bias f32[64]",
                                                                "dense_1/kernel f32[64,10]", "dense_1/bias f32[10]"});
}

TEST_CASE("a Sum forms its mean once, at the end", "[tensor]") {
  auto const sum = Sum<float>{6, 4} + Sum<float>{1, 1} + Sum<float>{};
  CHECK(sum.mean() == Approx(1.4));
  CHECK(Sum<float>{}.mean() == 0.0F);
}

TEST_CASE("initialisers have the limits and spreads of their papers", "[tensor]") {
  auto value        = std::vector<float>(20'000);
  auto const spread = [&](Init init) {
    initialize(value, {"kernel", {100, 200}, 2, init, 100, 200}, Random{1, 0});
    double squares = 0, largest = 0;
    for (float const v : value)
      squares += static_cast<double>(v * v), largest = std::max(largest, static_cast<double>(std::abs(v)));
    return std::pair{std::sqrt(squares / static_cast<double>(value.size())), largest};
  };
  auto const glorot = std::sqrt(2.0 / 300), he = std::sqrt(2.0 / 100);
  CHECK(spread(Init::glorot_normal).first == Approx(glorot).epsilon(0.02));
  CHECK(spread(Init::glorot_uniform).first == Approx(glorot).epsilon(0.02));
  CHECK(spread(Init::glorot_uniform).second <= std::sqrt(3.0) * glorot);
  CHECK(spread(Init::he_normal).first == Approx(he).epsilon(0.02));
  CHECK(spread(Init::he_uniform).first == Approx(he).epsilon(0.02));
  CHECK(spread(Init::zeros).second == 0.0);
}

namespace {

/// The variables of a constexpr plan, as a program lists them that knows them only when it runs.
template <class Net> std::vector<NamedShape> listed() {
  auto all = std::vector<NamedShape>{};
  for (auto const& v : Net::plan.variables)
    all.push_back({.name     = std::string{std::string_view{v.name}},
                   .dims     = {v.spec.dims.begin(), v.spec.dims.begin() + v.spec.rank},
                   .init     = v.spec.init,
                   .fan_in   = v.spec.fan_in,
                   .fan_out  = v.spec.fan_out,
                   .momentum = v.spec.momentum,
                   .layer    = v.layer});
  return all;
}

struct Normalized : nn::Sequential<nn::Input<512>, nn::Dense<256>, nn::BatchNorm<>, nn::ReLU, nn::Dense<10>> {};

}  // namespace

TEMPLATE_TEST_CASE("a plan that is made at run time is the constexpr plan of the same variables", "[tensor][plan]",
                   tiny::LeNet, Shapes, Normalized) {
  auto const made     = RunTimePlan{listed<TestType>()};
  auto const view     = PlanView{made};
  auto const expected = PlanView{TestType::plan};
  CHECK(view.elements == expected.elements);
  CHECK(view.parameters == expected.parameters);
  CHECK(view.buckets == expected.buckets);
  CHECK(view.hash == expected.hash);
  CHECK(std::ranges::equal(view.ends(), expected.ends()));
  CHECK(lines_of(view) == lines_of(expected));
  for (std::size_t i = 0; i < expected.variables.size(); ++i) {
    CHECK(view.variables[i].offset == expected.variables[i].offset);
    CHECK(view.variables[i].layer == expected.variables[i].layer);
  }
}

TEST_CASE("a plan that is made at run time lays each variable out as a layer", "[tensor][plan]") {
  auto const first  = std::make_optional(RunTimePlan{{{"slope", {40}}, {"offset"}}});
  auto const second = RunTimePlan{*first};
  auto const view   = PlanView{second};
  CHECK(view.variables[1].offset == plan::header);
  CHECK(view.variables[0].offset == plan::header + plan::align);
  CHECK(view.variables[1].size == 1);
  CHECK(view.parameters == 41);
  CHECK(view.arena_bytes(2) == 4 * view.bytes_per_step());
}

TEST_CASE("a plan counts what is trained, and its hash tells how the rest moves", "[tensor][plan]") {
  auto const hash_of = [](NamedShape const& other) { return PlanView{RunTimePlan{{{"slope", {40}}, other}}}.hash; };
  CHECK(hash_of({"b"}) != hash_of({.name = "b", .tracked = true}));
  CHECK(hash_of({.name = "b", .momentum = 0.5F}) != hash_of({.name = "b", .tracked = true}));
  auto const made = RunTimePlan{{{"slope", {40}}, {.name = "b", .tracked = true}}};
  CHECK(PlanView{made}.parameters == 40);
  CHECK_FALSE(PlanView{made}.variables[1].spec.trained());
  CHECK(PlanView{made}.variables[1].spec.movement() == Movement{1, 1});
}

TEST_CASE("a plan names what is wrong with a variable", "[tensor][plan]") {
  using Catch::Contains;
  CHECK_THROWS_WITH(RunTimePlan{std::vector<NamedShape>{}}, Contains("at least one variable"));
  CHECK_THROWS_WITH((RunTimePlan{{{"a", {1}}, {"a", {2}}}}), Contains("two variables have the name a"));
  CHECK_THROWS_WITH((RunTimePlan{{{std::string(97, 'n'), {1}}}}), Contains("1 to 96 characters") && Contains("has 97"));
  CHECK_THROWS_WITH((RunTimePlan{{{"a", {1, 2, 3, 4, 5}}}}), Contains("a has 5 dimensions") && Contains("at most 4"));
  CHECK_THROWS_WITH((RunTimePlan{{{"a", {3, 0}}}}), Contains("at least 1, but a has one of 0"));
  CHECK_THROWS_WITH((RunTimePlan{{{.name = "a", .layer = 1}, {.name = "b", .layer = 0}}}),
                    Contains("b is of layer 0 after layer 1"));
  CHECK_THROWS_WITH((RunTimePlan{{{.name = "a", .momentum = 0.5F, .tracked = true}}}),
                    Contains("a is tracked, and has a momentum of 0.5"));
  CHECK(PlanView{RunTimePlan{{{std::string(96, 'n')}}}}.variables.size() == 1);
}
