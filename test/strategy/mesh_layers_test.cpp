// SPDX-License-Identifier: Apache-2.0
//
// A GPT whose layers are split over an axis of a mesh, under MeshStrategy: the bits of one device.
#include "test/support/folder.hpp"

#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/parallel/split_attention.hpp>
#include <chorale/nn/parallel/split_dense.hpp>
#include <chorale/nn/parallel/split_embedding.hpp>
#include <chorale/nn/parallel/split_loss.hpp>
#include <chorale/nn/parallel/split_sequence.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace mesh_layers_test {

using namespace chorale;

namespace {

struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};

/// A block whose products are split over A, and its sequences between them.
template <class A> struct Part {
  nn::SplitLayerNorm<A> first, second;
  nn::ColumnDense<A, 48, nn::Blocks<3>, nn::SplitSequence> look;
  nn::ColumnHeads<A, 4, nn::Causal> attend;
  nn::RowDense<A, 16, nn::SplitSequence> join;
  nn::ColumnDense<A, 32, nn::SplitSequence> widen;
  nn::RowDense<A, 16, nn::SplitSequence> narrow;
  constexpr auto operator()(auto x) const {
    auto const seen = x + join(attend(look(first(x))));
    return seen + narrow(nn::gelu_tanh(widen(second(seen))));
  }
};
template <class A> struct Gpt : nn::Graph<Words> {
  nn::SplitEmbedding<A, 24, 16> table;
  nn::Positions<8, 16> places;
  std::array<Part<A>, 2> parts;
  nn::SplitLayerNorm<A> last;
  constexpr auto operator()(auto words) const {
    auto x = nn::scatter_sequence<A>(places(table(words)));
    for (auto const& part : parts) x = part(x);
    return nn::outputs<Next>(table.logits(nn::gather_sequence<A>(last(x))));
  }
};

/// What training ends with: a file of whole variables, byte for byte, and the loss of each epoch.
struct Learned {
  std::string file{};
  std::vector<double> losses{};
  std::vector<float> logits{};
};

/// Batches of 6 rows, and one of 2.
auto texts() {
  auto words = std::vector<int>(20 * 8), next = words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<int>(Random{1, 0}.below(i, 24));
  for (std::size_t i = 0; i < next.size(); ++i) next[i] = static_cast<int>(Random{1, 1}.below(i, 24));
  return data::from_fields<Words, Next>(words, next).batch(6);
}

template <int n, class S, class R = Reproducible<4>> Learned learned(S strategy, float clip, R reduce = {}) {
  using A          = Axis<"tensor", n>;
  auto const model = nn::compile<Gpt<A>>(loss::SplitSparseCrossEntropy<A>{},
                                         optim::Adam{.learning_rate = 1e-2F, .global_clipnorm = clip});
  auto trainer     = Trainer{model, std::move(strategy), reduce, LocalTransport{}, 7};
  auto made        = Learned{};
  for (auto const& epoch : trainer.fit(texts(), {.epochs = 2, .show = Show::nothing}))
    made.losses.push_back(epoch.scores.loss());
  auto const folder = chorale::test::Folder{};
  trainer.save(folder / "last");
  auto in              = std::ifstream{folder / "last", std::ios::binary};
  made.file            = std::string{std::istreambuf_iterator<char>{in}, {}};
  auto const predicted = trainer.predict(texts());
  made.logits.assign(predicted.values.begin(), predicted.values.end());
  return made;
}

float apart(std::vector<float> const& a, std::vector<float> const& b) {
  auto most = a.size() == b.size() ? 0.0F : HUGE_VALF;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("a GPT that is split over a mesh learns the bits of one device", "[strategy][mesh][split]") {
  for (auto const clip : {0.0F, 0.5F}) {
    auto const one  = learned<1>(OneDeviceStrategy{Cpu::logical(1)[0]}, clip);
    auto const grid = learned<2>(MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::logical(4)}}, clip);
    CHECK(grid.losses == one.losses);
    CHECK(grid.file == one.file);
    CHECK(grid.logits.size() == 20 * 8 * 24);
    CHECK(apart(grid.logits, one.logits) < 1e-5F);  // of shares of other sizes
    CHECK(one.losses[1] < one.losses[0]);
  }
}

}  // namespace mesh_layers_test
