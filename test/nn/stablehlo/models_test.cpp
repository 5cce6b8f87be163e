// SPDX-License-Identifier: Apache-2.0
//
// Whole networks as operations, each as small as its parts allow.
#include "test/nn/stablehlo/same_as_cpu.hpp"
#include "test/support/reference_nets.hpp"

#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/networks/resnet.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::test::reference_nets;
using test::error_of_network;

namespace {

struct InTurn : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                               nn::Dropout<0.5>, nn::Residual<nn::Dense<36>, nn::Tanh>, nn::Dense<3>> {};

// Blocks that backward computes again.
struct Again : nn::Graph<Noise> {
  nn::Dense<4> first;
  nn::Recompute<nn::Block<nn::Dense<8>, nn::GELU, nn::Dense<4>>> block;
  constexpr auto operator()(auto x) const { return nn::outputs<Picture>(block(first(x))); }
};

// A step of a vision transformer.
struct Patches : nn::Graph<Image> {
  nn::Conv2D<6, 4, nn::Stride<4>> patches;
  nn::ClassToken token;
  nn::Positions<5, 6> positions;
  nn::Dense<18> queries_keys_values;
  nn::LayerNorm norm;
  constexpr auto operator()(auto image) const {
    auto const x = positions(token(nn::reshape<4, 6>(patches(image))));
    auto const y = norm(x + nn::Heads<2>{}(queries_keys_values(x)));
    return nn::outputs<Kind>(nn::reshape<6>(nn::slice<0, 1, 0>(y)));
  }
};

}  // namespace

TEST_CASE("networks as operations are those of Cpu") {
  CHECK(error_of_network<LeNet>() < 1e-5);
  CHECK(error_of_network<Residual<nn::BatchNorm>>() < 1e-5);
  CHECK(error_of_network<Residual<nn::SyncBatchNorm>, 3>() < 1e-5);
  CHECK(error_of_network<CharacterGpt>() < 1e-5);
  CHECK(error_of_network<Tickets>() < 1e-5);
  CHECK(error_of_network<Dlrm>() < 1e-5);
  CHECK(error_of_network<Dlrm, 3>() < 1e-5);
  CHECK(error_of_network<Encoder>() < 1e-5);
  CHECK(error_of_network<Generator>() < 1e-5);
  CHECK(error_of_network<Critic>() < 1e-5);
  CHECK(error_of_network<InTurn>() < 1e-5);
  CHECK(error_of_network<Again>() < 1e-5);
  CHECK(error_of_network<Patches>() < 1e-5);
}

TEST_CASE("ResNet-20 as operations is that of Cpu") {
  using Net = nn::detail::TracedNetwork<nn::resnet::ResNet20<10, 2>>::type;
  CHECK(test::OnBoth<Net, 1>{true}.largest_error() < 1e-4);  // 60 layers round
}
