// SPDX-License-Identifier: Apache-2.0
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <sstream>

using namespace chorale;

// The plan is a constexpr value: these hold, or this file does not compile.
static_assert(tiny::LeNet::plan.parameters == 320 + 346'176 + 650);        // Keras' Total params: 347,146
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
static_assert(Shapes::plan.variables[2].spec.dims[0] == 2 * 2 * 4);      // ceil(7/2) x ceil(9/2) = 4 x 5, halved: 2 x 2

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
  CHECK(lines_of(tiny::LeNet::plan) ==
        std::vector<std::string>{"conv2d/kernel f32[3,3,1,32]", "conv2d/bias f32[32]", "dense/kernel f32[5408,64]",
                                 "dense/bias f32[64]", "dense_1/kernel f32[64,10]", "dense_1/bias f32[10]"});
}

TEST_CASE("a Sum forms its mean once, at the end", "[tensor]") {
  auto const sum = Sum<float>{6, 4} + Sum<float>{1, 1} + Sum<float>{};
  CHECK(sum.mean() == Approx(1.4));
  CHECK(Sum<float>{}.mean() == 0.0F);
}

TEST_CASE("initialisers have the limits and spreads of their papers", "[tensor]") {
  auto value = std::vector<float>(20'000);
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
