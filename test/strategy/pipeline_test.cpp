// SPDX-License-Identifier: Apache-2.0
//
// Stages of a pipeline under a Trainer, against the whole network on one device. Ranks are threads.
#include "test/support/folder.hpp"

#include <chorale/nn/activation.hpp>
#include <chorale/nn/batch_norm.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/dense.hpp>
#include <chorale/nn/dropout.hpp>
#include <chorale/nn/embedding.hpp>
#include <chorale/nn/layer_norm.hpp>
#include <chorale/nn/metric.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/optim/adam.hpp>
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

using namespace chorale;

namespace {

struct Tokens : Field<int, 3> {};
struct Next : Field<int, 1> {};

constexpr int words = 11, wide = 6;

/// Seven layers with variables, a residual over the cuts, a head that is tied to the table of words, moving averages, and
/// dropout.
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

auto model(float clipnorm = 0) {
  return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 0.01F, .global_clipnorm = clipnorm},
                          metric::Accuracy{});
}
auto const quietly = FitOptions{.epochs = 4, .show = Show::nothing};

/// What training ends with.
struct Learned {
  std::vector<float> values{};
  double loss = 0, accuracy = 0, evaluated = 0;
  std::vector<float> outputs{};

  friend bool operator==(Learned const&, Learned const&) = default;
};

template <class Trainer>
Learned learned(Trainer& trainer, FitOptions const& options = quietly) {
  auto const folder  = chorale::test::Folder{};
  auto const history = trainer.fit(Data{}, options);
  auto const scores  = trainer.evaluate(Data{});
  CHECK(scores.rows() == 80);
  CHECK(history.back().scores.rows() == 80);
  trainer.save(folder / "weights");
  auto const file = SafetensorsFile::read(folder / "weights");
  auto all = Learned{.loss = history.back().scores.loss(), .accuracy = history.back().scores.metric(0),
                     .evaluated = scores.loss()};
  for (auto const& tensor : file.tensors()) {
    auto const* const x = reinterpret_cast<float const*>(tensor.bytes.data());
    all.values.insert(all.values.end(), x, x + tensor.bytes.size() / sizeof(float));
  }
  auto const predictions = trainer.predict(Data{});
  all.outputs.assign(predictions.values.begin(), predictions.values.end());
  return all;
}
template <class S, class R>
Learned under(S strategy, R reduce, float clipnorm = 0) {
  auto trainer = Trainer{model(clipnorm), strategy, reduce, LocalTransport{}, 7};
  return learned(trainer);
}
Learned on_one(float clipnorm = 0) { return under(OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, clipnorm); }

double apart(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])));
  return worst;
}

template <int p>
auto stages() {
  return Mesh<Axis<"stage", p>>{Cpu::logical(p)};
}

}  // namespace

TEST_CASE("a trainer over stages learns the bits of one device, clipped or not", "[strategy][pipeline]") {
  for (auto const clipnorm : {0.0F, 0.05F}) {
    CAPTURE(clipnorm);
    auto const one = on_one(clipnorm);
    CHECK(one.accuracy > 0);
    auto const two = under(MeshStrategy{stages<2>(), pipelined<OneForwardOneBackward<8>>()}, Reproducible<8>{}, clipnorm);
    CHECK(two.values == one.values);
    CHECK(two.loss == one.loss);
    CHECK(two.accuracy == one.accuracy);
    CHECK(two.evaluated == Approx(one.evaluated));                         // added up over micro-batches
    CHECK(apart(two.outputs, one.outputs) < 1e-6);
  }
}
