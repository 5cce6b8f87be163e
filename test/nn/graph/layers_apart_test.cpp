// SPDX-License-Identifier: Apache-2.0
//
// Layers over sequences on several replicas: what one replica with the whole batch computes.
#include "test/nn/graph/tickets.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>

namespace layers_apart_test {

using namespace chorale;
using namespace chorale::test::tickets;

namespace {

struct Reader : nn::Graph<Body> {
  nn::Embedding<50, 4> words;
  nn::Conv1D<4, 3, nn::Causal> conv;
  nn::Bidirectional<nn::GRU<3, nn::Sequences>> gru;
  nn::MultiHeadAttention<2, 2> attention;
  nn::RMSNorm<> norm;
  nn::PReLU<nn::PerChannel> slope;
  nn::Bidirectional<nn::LSTM<2>> lstm;
  nn::Dense<1> priority;

  constexpr auto operator()(auto body) const {
    auto const x = gru(nn::GaussianNoise<10>{}(conv(words(body))));  // (B, 9, 6)
    auto const y = slope(norm(x + attention(x)));
    auto const z = nn::concatenate(nn::GlobalMaxPool1D{}(nn::MaxPool1D<2>{}(y)), lstm(y));  // (B, 10)
    return nn::outputs<Priority>(priority(z));
  }
};

template <class R> Trained on(int replicas, R reduce) {
  return trained(nn::compile<Reader>(nn::of<Priority>(loss::MeanSquaredError{}), optim::Adam{.learning_rate = 1e-2F}),
                 MirroredStrategy{Cpu::logical(replicas)}, reduce);
}

}  // namespace

TEST_CASE("layers over sequences have the bits of one replica on any number of them", "[nn][graph]") {
  auto const one = on(1, Reproducible{});
  CHECK(one.loss > 0);
  for (auto const replicas : {2, 3}) CHECK(on(replicas, Reproducible{}).values == one.values);
}

TEST_CASE("layers over sequences learn what one replica learns, with equal copies", "[nn][graph]") {
  auto const one = on(1, RingAllReduce{}), three = on(3, RingAllReduce{});
  CHECK(std::ranges::count(three.hashes, three.hashes[0]) == 3);
  CHECK(difference(one, three) < 1e-3);
}

}  // namespace layers_apart_test
