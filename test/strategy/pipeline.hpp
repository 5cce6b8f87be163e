// SPDX-License-Identifier: Apache-2.0
//
// A network that is cut in stages, and what a trainer learns of it.
#pragma once

#include "test/support/folder.hpp"

#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/grouped.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace pipeline_test {

using namespace chorale;

struct Tokens : Field<int, 3> {};
struct Next : Field<int, 1> {};

constexpr int words = 11, wide = 6;

/// Seven layers with variables, a residual over the cuts, a head that is tied to the table of words, moving averages,
/// and dropout.
struct Net : nn::Graph<Tokens> {
  nn::Embedding<words, wide, nn::DenseGradient> table{"words"};
  nn::Dense<3 * wide> a{"a"}, b{"b"}, c{"c"};
  nn::BatchNorm<> moving{"moving"};
  nn::LayerNorm last{"last"};
  nn::Dense<wide> narrow{"narrow"};

  constexpr auto operator()(auto tokens) const {
    auto const first = nn::reshape<3 * wide>(table(tokens));
    auto const x     = nn::Dropout<20>{}(nn::Tanh{}(a(first)));
    auto const y     = moving(x + nn::ReLU{}(b(x)));
    return nn::outputs<Next>(table.logits(narrow(last(c(y) + first))));
  }
};

using Batch = Rows<Tokens, Next>;

/// Batches whose rows divide by few numbers of micro-batches.
struct Data {
  using element = Batch;

  std::vector<std::size_t> sizes{16, 13, 16, 5, 16, 14};
  std::vector<int> tokens, next;

  Data() {
    auto const random = Random{3, 0};
    for (std::size_t i = 0; i < 3 * 80; ++i) tokens.push_back(static_cast<int>(random.uniform(i, 0, words)));
    for (std::size_t i = 0; i < 80; ++i) next.push_back((tokens[3 * i] + tokens[3 * i + 1]) % words);
  }
  struct Stream {
    Data const* from;
    std::size_t i = 0, first = 0;

    bool next(Batch& batch) {
      if (i == from->sizes.size()) return false;
      auto const n                = from->sizes[i++];
      std::get<0>(batch.fields()) = Span<int const>{from->tokens}.subspan(3 * first, 3 * n);
      std::get<1>(batch.fields()) = Span<int const>{from->next}.subspan(first, n);
      batch.rows                  = n;
      first += n;
      return true;
    }
  };
  Stream stream(std::size_t) const { return {this}; }
  std::optional<std::size_t> size() const { return sizes.size(); }
};

inline auto frozen_model() {
  return nn::compile<Net>(loss::SparseCrossEntropy{},
                          optim::Grouped{optim::Adam{.learning_rate = 0.01F}, {optim::frozen("moving/*")}},
                          metric::Accuracy{});
}
inline auto model(float clipnorm = 0) {
  return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 0.01F, .global_clipnorm = clipnorm},
                          metric::Accuracy{});
}
inline auto const quietly = FitOptions{.epochs = 4, .show = Show::nothing};

/// What training ends with.
struct Learned {
  std::vector<float> values{};
  double loss = 0, accuracy = 0, evaluated = 0;
  std::vector<float> outputs{};

  friend bool operator==(Learned const&, Learned const&) = default;
};

template <class Trainer>
Learned learned(Trainer& trainer, FitOptions const& options = quietly, std::size_t epochs = 4) {
  auto const folder  = chorale::test::Folder{};
  auto const history = trainer.fit(Data{}, options);
  auto const scores  = trainer.evaluate(Data{});
  CHECK(history.size() == epochs);
  CHECK(scores.rows() == 80);
  CHECK(history.back().scores.rows() == 80);
  trainer.save(folder / "weights");
  auto const file = SafetensorsFile::read(folder / "weights");
  auto all        = Learned{
             .loss = history.back().scores.loss(), .accuracy = history.back().scores.metric(0), .evaluated = scores.loss()};
  for (auto const& tensor : file.tensors()) {
    auto const* const x = reinterpret_cast<float const*>(tensor.bytes.data());
    all.values.insert(all.values.end(), x, x + tensor.bytes.size() / sizeof(float));
  }
  auto const predictions = trainer.predict(Data{});
  all.outputs.assign(predictions.values.begin(), predictions.values.end());
  return all;
}
template <class S, class R, class T = LocalTransport>
Learned under(S strategy, R reduce, float clipnorm = 0, T transport = {}) {
  auto trainer = Trainer{model(clipnorm), strategy, reduce, transport, 7};
  return learned(trainer);
}
inline Learned on_one(float clipnorm = 0) {
  return under(OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, clipnorm);
}

inline double apart(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])));
  return worst;
}

/// A network without moving averages, whose mean over a batch is not that of its micro-batches.
struct Still : nn::Graph<Tokens> {
  nn::Embedding<words, wide, nn::DenseGradient> table{"words"};
  nn::Dense<3 * wide> a{"a"};
  nn::Dense<wide> narrow{"narrow"};

  constexpr auto operator()(auto tokens) const {
    auto const first = nn::reshape<3 * wide>(table(tokens));
    return nn::outputs<Next>(table.logits(narrow(nn::Tanh{}(a(first)) + first)));
  }
};
template <class S> std::vector<float> without_moving(S strategy, float clipnorm) {
  auto trainer =
      Trainer{nn::compile<Still>(loss::SparseCrossEntropy{},
                                 optim::Adam{.learning_rate = 0.01F, .global_clipnorm = clipnorm}, metric::Accuracy{}),
              strategy, RingAllReduce{}, LocalTransport{}, 7};
  return learned(trainer).values;
}

template <int p> auto stages() { return Mesh<Axis<"stage", p>>{Cpu::logical(p)}; }

}  // namespace pipeline_test
