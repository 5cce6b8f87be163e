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

struct Padded : Field<int, 7> {};
struct Ids : Field<int, ragged> {};
struct Y : Field<float, classes> {};
struct All : Field<float, ragged, classes> {};

template <class Middle, class Out> struct Network : nn::Graph<Ids> {
  nn::Embedding<words, width, nn::DenseGradient> table;
  Middle middle;
  nn::Dense<classes> dense;
  constexpr auto operator()(auto ids) const { return nn::outputs<Out>(dense(middle(table(ids)))); }
};

/// Attention of a text to itself, with a mask in Keras.
struct Attention {
  nn::Dense<3 * width> queries_keys_values;
  nn::Dense<width> mixed;
  constexpr auto operator()(auto x) const { return mixed(nn::Heads<2>{}(queries_keys_values(x))); }
};

/// The texts that Keras gets, without their zeros.
auto texts() {
  auto padded = std::vector<int>(5 * 7);
  for (std::size_t r = 0; r < 5; ++r)
    for (std::size_t t = 0; t < static_cast<std::size_t>(lengths[r]); ++t)
      padded[7 * r + t] = static_cast<int>((5 * r + 3 * t) % 8 + 1);
  return data::from_fields<Padded>(padded).unpad<Ids>(Padded{}).padded_batch(5, data::PaddingOf<Ids>{.value = 99});
}

constexpr auto salts = std::array<std::uint32_t, 11>{
    0x2545F491, 0x4F6CDD1D, 0x7F4A7C15, 0x1CE4E5B9, 0x133111EB, 0x5851F42D, 0x101, 0x202, 0x303, 0x404, 0x505};

std::vector<float> around_zero(std::size_t n, std::uint32_t salt) { return golden::initial({"", n, salt, 2}); }

double error(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto apart = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    apart = std::max(apart, static_cast<double>(std::abs(got[i] - want[i])));
  return apart;
}

/// Variables of Keras, of those that `numbers` gives, which make one of ours: side by side, in rows of `part` numbers.
std::vector<float> side_by_side(std::vector<std::size_t> const& variables, std::size_t part, auto const& numbers) {
  auto all = std::vector<std::vector<float>>{};
  for (auto const v : variables) all.push_back(numbers(v));
  if (all.size() == 1) return all[0];
  auto made = std::vector<float>{};
  for (std::size_t i = 0; i < all[0].size(); i += part)
    for (auto const& one : all)
      made.insert(made.end(), one.begin() + static_cast<std::ptrdiff_t>(i),
                  one.begin() + static_cast<std::ptrdiff_t>(i + part));
  return made;
}

/// Compares a network with Keras'. `theirs` are for each of our variables those of Keras.
template <class Net> void check(std::string const& name, std::vector<std::vector<std::size_t>> const& theirs) {
  INFO(name);
  auto const expected  = SafetensorsFile::read("test/golden/masked.safetensors");
  constexpr auto& plan = nn::plan_of<Net>;
  auto variables = std::vector<float>(plan.elements), gradients = variables;
  REQUIRE(plan.variables.size() == theirs.size());
  for (std::size_t v = 0; v < theirs.size(); ++v) {
    auto const of_one = plan.variables[v].size / theirs[v].size();
    std::ranges::copy(side_by_side(theirs[v], width, [&](auto k) { return around_zero(of_one, salts[k]); }),
                      variables.begin() + static_cast<std::ptrdiff_t>(plan.variables[v].offset));
  }
  auto stream = texts().stream(0);
  auto batch  = Rows<Ids>{};
  REQUIRE(stream.next(batch));
  REQUIRE(std::ranges::equal(batch.lengths(Ids{}), lengths));
  auto executor = nn::GraphExecutor<Net, Cpu>{5, variables, gradients, {}, {}, {18}};
  executor.read(0, batch[Ids{}].data(), batch.width(Ids{}), batch.lengths(Ids{}));
  executor.forward({.training = true});
  CHECK(error({executor.output(0), executor.size(0)}, expected.floats(name + "/y")) < 5e-6);
  std::ranges::copy(around_zero(executor.size(0), 0x11), executor.d_output(0));
  executor.backward({.training = true}, LooksAtEnd{});
  for (std::size_t v = 0; v < theirs.size(); ++v) {
    INFO("variable " << v);
    auto const& planned = plan.variables[v];
    auto const want =
        side_by_side(theirs[v], width, [&](auto k) { return expected.floats(name + "/" + std::to_string(k)); });
    CHECK(error(Span<float const>{gradients}.subspan(planned.offset, planned.size), want) < 6e-6);
  }
}

}  // namespace

TEST_CASE("rows of different lengths have Keras' outputs and gradients under a mask", "[golden][ragged]") {
  check<Network<nn::LSTM<units>, Y>>("lstm", {{0}, {1}, {2}, {3}, {4}, {5}});
  check<Network<nn::LSTM<units, nn::Sequences>, All>>("sequences", {{0}, {1}, {2}, {3}, {4}, {5}});
  check<Network<nn::GlobalAveragePool1D, Y>>("average", {{0}, {1}, {2}});
  check<Network<Attention, All>>("attention", {{0}, {1, 3, 5}, {2, 4, 6}, {7}, {8}, {9}, {10}});
}

}  // namespace masked_test
