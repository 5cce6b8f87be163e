// SPDX-License-Identifier: Apache-2.0
#include "test/nn/stablehlo/same_as_cpu.hpp"

#include <chorale/data/field.hpp>
#include <chorale/nn/layers/bidirectional.hpp>
#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/networks/block.hpp>
#include <chorale/nn/networks/graph.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using test::error_of_network;
using test::Layers;

namespace {

template <int... D> using X = nn::Of<float, D...>;

constexpr double near = 1e-5;

}  // namespace

TEST_CASE("activations are those of Cpu") {
  using namespace nn;
  CHECK(Layers<ReLU, LeakyReLU<20>, ELU, Tanh, Sigmoid, Softplus, GELU, GELUTanh, SiLU, Softmax, PReLU<>,
               PReLU<PerChannel>, Dense<5>>::error_on<X<4, 3>>() < near);
}
TEST_CASE("layers over images are those of Cpu") {
  using namespace nn;
  CHECK(Layers<Conv2D<4, 3>, Conv2D<4, 3, Same, Stride<2>, NoBias>, Conv2D<4, 3, Pad<1>, Stride<3>>,
               Conv2D<4, 2, Same, KernelWidth<3>, Groups<2>>, Conv2D<2, 2, Dilation<2>>, DepthwiseConv2D<3, Same>,
               DepthwiseConv2D<2, DepthMultiplier<2>, Stride<2>, NoBias>, SeparableConv2D<3, 3>, Conv2DTranspose<3, 3>,
               Conv2DTranspose<3, 3, Same, Stride<2>>, Conv2DTranspose<2, 3, Stride<2>, NoBias>, MaxPool2D<2>,
               MaxPool2D<3, Same, Stride<2>>, MaxPool2D<3, Pad<1>, Stride<2>>, AveragePool2D<2>,
               AveragePool2D<3, Same, Stride<2>>, AveragePool2D<3, Pad<1>, Stride<1>>, GlobalMaxPool2D,
               GlobalAveragePool2D, Block<Conv2D<3, 3>, ReLU, MaxPool2D<2>>, Flatten>::error_on<X<6, 5, 4>>() < near);
}
TEST_CASE("normalizations of images are those of Cpu") {
  using namespace nn;
  CHECK(Layers<BatchNorm<>, BatchNorm<Momentum<90>, Epsilon<10>>, SyncBatchNorm<>, LayerNorm,
               LayerNormWith<Epsilon<1000>>, RMSNorm<>, UnitNorm, GroupNorm<2>,
               Residual<Conv2D<4, 3, Same>, BatchNorm<>, ReLU>, UpSampling2D<2, 3>, ZeroPadding2D<1, 2, 0, 1>,
               Cropping2D<1, 0, 1, 2>, Permute<2, 0, 1>, Reshape<10, 8>, Slice<1, 3>,
               Slice<1, 2, 1>>::error_on<X<5, 4, 4>>() < near);
}

TEST_CASE("layers over vectors are those of Cpu") {
  using namespace nn;
  CHECK(Layers<BatchNorm<>, LayerNorm, UnitNorm, GroupNorm<3>, Dropout<0.4>, Dropout<50>, GaussianNoise<10>,
               Dropout<0.0>, Dense<7>, Reshape<3, 3>>::error_on<X<9>>() < near);
  CHECK(Layers<Subtract, Multiply, Maximum, Minimum, Average, Dot, Concatenate, Interaction,
               Add>::error_on<X<5>, X<5>>() < near);
  CHECK(Layers<Interaction, Average, Concatenate>::error_on<X<5>, X<5>, X<5>, X<5>>() < near);
}

TEST_CASE("layers over sequences are those of Cpu") {
  using namespace nn;
  CHECK(Layers<Conv1D<4, 3>, Conv1D<4, 2, Causal, Dilation<2>>, Conv1D<6, 3, Same, Stride<2>, Groups<2>, NoBias>,
               MaxPool1D<2>, MaxPool1D<3, Same, Stride<2>>, AveragePool1D<3, Pad<1>>, GlobalMaxPool1D,
               GlobalAveragePool1D, Dropout<0.3>, ClassToken, Positions<8, 6>, Heads<2>, CausalHeads<1>, Softmax,
               MultiHeadAttention<2, 3>, MultiHeadAttention<2, 4, Causal>, Slice<1, 4, 0>, Permute<1, 0>,
               LayerNorm>::error_on<X<7, 6>>() < near);
  CHECK(Layers<SimpleRNN<4>, SimpleRNN<3, Sequences, Reverse>, LSTM<4>, LSTM<3, Sequences>, LSTM<3, Reverse>, GRU<4>,
               GRU<3, Sequences, Reverse>, Bidirectional<LSTM<3, Sequences>>, Bidirectional<GRU<2>>,
               TimeDistributed<Dense<3>>>::error_on<X<5, 3>>() < near);
  CHECK(Layers<MultiHeadAttention<2, 3>, MultiHeadAttention<1, 3, Causal>>::error_on<X<4, 6>, X<5, 3>>() < near);
  CHECK(Layers<Dot>::error_on<X<4, 6>, X<5, 6>>() < near);
}

namespace {

struct Word : Field<int, 4> {};
struct Logits : Field<float, 1> {};
struct Bag : Field<float, 1> {};
struct Mean : Field<float, 1> {};

// A table that is also the last layer, tables of rows, and bags.
struct Tables : nn::Graph<Word> {
  nn::Embedding<5, 3> table;
  nn::Embedding<4, 6> others;
  nn::Embedding<4, 2, nn::DenseGradient> dense;
  nn::EmbeddingBag<3, 4, nn::Bag::sum> bag;
  nn::EmbeddingBag<3, 4> mean;

  constexpr auto operator()(auto ids) const {
    auto const x = nn::concatenate(others(nn::slice<1, 3>(ids)), nn::reshape<2, 4>(dense(ids)));
    return nn::outputs<Logits, Bag, Mean, Word>(table.logits(nn::relu(table(ids))), bag(ids), mean(ids), x);
  }
};

}  // namespace

TEST_CASE("layers over the whole batch are those of Cpu on three replicas") {
  using namespace nn;
  CHECK(Layers<SyncBatchNorm<>, Dropout<0.4>, Dense<3>, GaussianNoise<20>>::error_on_three<X<6>>() < near);
  CHECK(Layers<SyncBatchNorm<Epsilon<10>>, Residual<SyncBatchNorm<>>>::error_on_three<X<3, 2, 4>>() < near);
}

TEST_CASE("tables of vectors are those of Cpu") { CHECK(error_of_network<Tables>() < near); }
