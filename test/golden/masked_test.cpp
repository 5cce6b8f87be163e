// SPDX-License-Identifier: Apache-2.0
//
// Rows of different lengths against Keras' numbers for masks. README.md beside this file has the tolerances.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace masked_test {

using namespace chorale;

namespace {

constexpr auto lengths = std::array{7, 3, 1, 5, 2};
constexpr int words = 9, width = 4, units = 6, classes = 3;

struct Ids : Field<int, ragged> {};
struct Y : Field<float, classes> {};
struct All : Field<float, ragged, classes> {};

template <class Middle, class Out>
struct Network : nn::Graph<Ids> {
  nn::Embedding<words, width, nn::DenseGradient> table;
  Middle middle;
  nn::Dense<classes> dense;
  constexpr auto operator()(auto ids) const { return nn::outputs<Out>(dense(middle(table(ids)))); }
};

std::vector<float> around_zero(std::size_t n, std::uint32_t salt) { return golden::initial({"", n, salt, 2}); }

double error(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto apart = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    apart = std::max(apart, static_cast<double>(std::abs(got[i] - want[i])));
  return apart;
}

template <class Net>
void check(std::string const& name) {
  INFO(name);
  auto const expected  = SafetensorsFile::read("test/golden/masked.safetensors");
  constexpr auto& plan = nn::plan_of<Net>;
  auto variables = std::vector<float>(plan.elements), gradients = variables;
  auto const salts =
      std::array<std::uint32_t, 6>{0x2545F491, 0x4F6CDD1D, 0x7F4A7C15, 0x1CE4E5B9, 0x133111EB, 0x5851F42D};
  for (std::size_t v = 0; v < plan.variables.size(); ++v)
    std::ranges::copy(around_zero(plan.variables[v].size, salts[v]),
                      variables.begin() + static_cast<std::ptrdiff_t>(plan.variables[v].offset));
  auto ids = std::vector<int>(5 * 7, 8);                                   // padding is not read: another id than 0
  for (std::size_t r = 0; r < 5; ++r)
    for (std::size_t t = 0; t < static_cast<std::size_t>(lengths[r]); ++t)
      ids[7 * r + t] = static_cast<int>((5 * r + 3 * t) % 8 + 1);
  auto executor = nn::GraphExecutor<Net, Cpu>{5, variables, gradients, {}, {}, {18}};
  executor.read(0, ids.data(), 7, lengths);
  executor.forward({.training = true});
  CHECK(error({executor.output(0), executor.size(0)}, expected.floats(name + "/y")) < 2e-6);
  std::ranges::copy(around_zero(executor.size(0), 0x11), executor.d_output(0));
  executor.backward({.training = true}, LooksAtEnd{});
  for (std::size_t v = 0; v < plan.variables.size(); ++v) {
    INFO("variable " << v);
    auto const& planned = plan.variables[v];
    CHECK(error(Span<float const>{gradients}.subspan(planned.offset, planned.size),
                expected.floats(name + "/" + std::to_string(v))) < 4e-6);
  }
}

}  // namespace

TEST_CASE("rows of different lengths have Keras' outputs and gradients under a mask", "[golden][ragged]") {
  check<Network<nn::LSTM<units>, Y>>("lstm");
  check<Network<nn::LSTM<units, nn::Sequences>, All>>("sequences");
  check<Network<nn::GlobalAveragePool1D, Y>>("average");
}

}  // namespace masked_test
