// SPDX-License-Identifier: Apache-2.0
//
// Layers, one by one, against Keras' numbers. README.md beside this file has the tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace layers_test {

using namespace chorale;
using nn::Of;

namespace {

constexpr std::size_t rows = 3;
constexpr double tolerance = 5e-6;  // relative to the largest number, or to 1

template <std::size_t I, class O> struct In;
template <std::size_t I, int... D> struct In<I, Of<float, D...>> : Field<float, D...> {};
struct Out : Field<float, 1> {};

/// A network of one layer, or of a struct of layers.
template <class L, class Indices, class... O> struct Alone;
template <class L, std::size_t... I, class... O>
struct Alone<L, std::index_sequence<I...>, O...> : nn::Graph<nn::Differentiable<In<I, O>>...> {
  L layer;
  constexpr auto operator()(auto... x) const { return nn::outputs<Out>(layer(x...)); }
};

/// The largest difference, relative to the largest number.
double error(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto apart = 0.0, largest = 1.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    apart   = std::max(apart, static_cast<double>(std::abs(got[i] - want[i])));
    largest = std::max(largest, static_cast<double>(std::abs(want[i])));
  }
  return apart / largest;
}

template <class L, class... O> void check(std::string const& name, double of_variables = tolerance) {
  INFO(name);
  using Net                  = Alone<L, std::index_sequence_for<O...>, O...>;
  static auto const expected = SafetensorsFile::read("test/golden/layers.safetensors");
  constexpr auto& plan       = nn::plan_of<Net>;
  auto variables = std::vector<float>(plan.elements), gradients = variables;
  for (std::uint32_t v = 0; v < plan.variables.size(); ++v)
    std::ranges::copy(golden::initial({"", plan.variables[v].size, 0x2545F491 + 0x3C6EF372 * v, 2}),
                      variables.begin() + static_cast<std::ptrdiff_t>(plan.variables[v].offset));
  auto executor   = nn::GraphExecutor<Net, Cpu>{rows, variables, gradients};
  auto x          = std::vector<std::vector<float>>{};
  auto const salt = [&] { return 0x11 + 0x5851F42D * static_cast<std::uint32_t>(x.size()); };
  (x.push_back(golden::initial({"", rows * O::size, salt(), 4})), ...);
  for (std::size_t i = 0; i < x.size(); ++i) executor.read(i, x[i].data());
  executor.forward({.training = true});
  auto const n = rows * executor.width(0);
  CHECK(error({executor.output(0), n}, expected.floats(name + "/y")) < tolerance);
  std::ranges::copy(golden::initial({"", n, 0x1CE4E5B9, 2}), executor.d_output(0));
  executor.backward({.training = true}, LooksAtEnd{});
  for (std::size_t i = 0; i < x.size(); ++i)
    CHECK(error({executor.d_input(i), x[i].size()}, expected.floats(name + "/x" + std::to_string(i))) < tolerance);
  for (std::size_t v = 0; v < plan.variables.size(); ++v) {
    INFO(std::string_view{plan.variables[v].name});
    CHECK(error(Span<float const>{gradients}.subspan(plan.variables[v].offset, plan.variables[v].size),
                expected.floats(name + "/v" + std::to_string(v))) < of_variables);
  }
}

using Sequence = Of<float, 6, 4>;
using Image    = Of<float, 5, 4, 6>;

}  // namespace

TEST_CASE("layers that read sequences compute Keras' numbers", "[golden][nn]") {
  check<nn::LSTM<5, nn::Sequences, nn::Reverse>, Sequence>("lstm_reverse");
  check<nn::GRU<5>, Sequence>("gru");
  check<nn::GRU<5, nn::ReturnSequences>, Sequence>("gru_sequences");
  check<nn::GRU<5, nn::Sequences, nn::Reverse>, Sequence>("gru_reverse");
  check<nn::SimpleRNN<5>, Sequence>("simple_rnn");
  check<nn::SimpleRNN<5, nn::Reverse>, Sequence>("simple_rnn_reverse");
  check<nn::Bidirectional<nn::GRU<3, nn::Sequences>>, Sequence>("bidirectional");
  check<nn::RMSNorm<>, Sequence>("rms_norm");
  check<nn::MultiHeadAttention<2, 3>, Sequence, Of<float, 7, 5>>("attention");
  check<nn::MultiHeadAttention<2, 3, nn::Causal>, Of<float, 40, 4>, Of<float, 40, 4>>("attention_causal", 3e-5);
  check<nn::Conv1D<8, 3, nn::Stride<2>, nn::Same>, Sequence>("conv1d");
  check<nn::Conv1D<4, 3, nn::Causal, nn::Dilation<2>, nn::Groups<2>>, Sequence>("conv1d_causal");
  check<nn::MaxPool1D<3, nn::Stride<2>, nn::Same>, Sequence>("max_pool1d");
  check<nn::AveragePool1D<3, nn::Stride<2>, nn::Same>, Sequence>("average_pool1d");
  check<nn::GlobalAveragePool1D, Sequence>("global_average1d");
  check<nn::GlobalMaxPool1D, Sequence>("global_max1d");
  check<nn::PReLU<>, Sequence>("prelu");
}

TEST_CASE("layers of images compute Keras' numbers", "[golden][nn]") {
  check<nn::GroupNorm<2>, Image>("group_norm");
  check<nn::Conv2D<4, 2, nn::KernelWidth<3>, nn::Same>, Image>("conv2d");
  check<nn::Conv2D<4, 2, nn::Dilation<2>>, Image>("conv2d_dilated");
  check<nn::Conv2D<4, 3, nn::Same, nn::Stride<2>, nn::Groups<2>>, Image>("conv2d_groups");
  check<nn::DepthwiseConv2D<3, nn::DepthMultiplier<2>, nn::Same>, Image>("depthwise");
  check<nn::SeparableConv2D<4, 3>, Image>("separable");
  check<nn::Conv2DTranspose<3, 3, nn::Stride<2>, nn::Same>, Image>("transpose");
  check<nn::Conv2DTranspose<4, 4, nn::Stride<3>>, Image>("transpose_valid");
  check<nn::GlobalAveragePool2D, Image>("global_average2d");
  check<nn::GlobalMaxPool2D, Image>("global_max2d");
  check<nn::UpSampling2D<2, 3>, Image>("up_sampling");
  check<nn::ZeroPadding2D<1, 2, 0, 3>, Image>("zero_padding");
  check<nn::Cropping2D<1, 2, 0, 3>, Image>("cropping");
  check<nn::PReLU<nn::PerChannel>, Image>("prelu_per_channel");
}

TEST_CASE("layers of several inputs compute Keras' numbers", "[golden][nn]") {
  check<nn::Dot, Sequence, Of<float, 3, 4>>("dot");
  check<nn::Maximum, Sequence, Sequence>("maximum");
  check<nn::Minimum, Sequence, Sequence>("minimum");
  check<nn::Average, Sequence, Sequence, Sequence>("average");
}

}  // namespace layers_test
