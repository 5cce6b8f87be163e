// SPDX-License-Identifier: Apache-2.0
//
// LSTM against Keras' numbers. README.md beside this file has the tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace lstm_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 5;
constexpr int steps = 6, channels = 4, units = 7;

struct X : Field<float, steps, channels> {};
struct Y : Field<float, units> {};
struct All : Field<float, steps, units> {};

struct Last : nn::Graph<nn::Differentiable<X>> {
  nn::LSTM<units> lstm;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(lstm(x)); }
};
struct Whole : nn::Graph<nn::Differentiable<X>> {
  nn::LSTM<units, nn::Sequences> lstm;
  constexpr auto operator()(auto x) const { return nn::outputs<All>(lstm(x)); }
};

std::vector<float> around_zero(std::size_t n, std::uint32_t salt, float scale) {
  return golden::initial({"", n, salt, scale});
}

double error(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto apart = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    apart = std::max(apart, static_cast<double>(std::abs(got[i] - want[i])));
  return apart;
}

template <class Net> void check(std::string const& name) {
  INFO(name);
  auto const expected  = SafetensorsFile::read("test/golden/lstm.safetensors");
  constexpr auto& plan = nn::plan_of<Net>;
  auto variables = std::vector<float>(plan.elements), gradients = variables;
  auto const salts  = std::array<std::uint32_t, 3>{0x2545F491, 0x4F6CDD1D, 0x7F4A7C15};
  auto const scales = std::array<float, 3>{2, 2, 1};
  for (std::size_t v = 0; v < 3; ++v)
    std::ranges::copy(around_zero(plan.variables[v].size, salts[v], scales[v]),
                      variables.begin() + static_cast<std::ptrdiff_t>(plan.variables[v].offset));
  auto const x  = around_zero(rows * steps * channels, 0x11, 4);
  auto executor = nn::GraphExecutor<Net, Cpu>{rows, variables, gradients};
  executor.read(0, x.data());
  executor.forward({.training = true});
  auto const n = rows * executor.width(0);
  CHECK(error({executor.output(0), n}, expected.floats(name + "/y")) < 2e-6);
  std::ranges::copy(around_zero(n, 0x1CE4E5B9, 2), executor.d_output(0));
  executor.backward({.training = true}, LooksAtEnd{});
  CHECK(error({executor.d_input(0), x.size()}, expected.floats(name + "/x")) < 1.2e-6);
  for (std::size_t v = 0; v < 3; ++v) {
    auto const& planned = plan.variables[v];
    INFO(std::string_view{planned.name});
    CHECK(error(Span<float const>{gradients}.subspan(planned.offset, planned.size),
                expected.floats(name + "/" + std::string{planned.spec.name})) < 3e-6);
  }
}

}  // namespace

TEST_CASE("the states of an LSTM and their gradients are Keras'", "[golden][nn]") {
  check<Last>("last");
  check<Whole>("sequences");
}

}  // namespace lstm_test
