// data_axis_of_same_rows.cpp   expect: along which batches are dealt out and gradients are added up, and needs the same rows on all its ranks. Split it along another Axis of the Mesh
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
using Ranks = Axis<"data", 2>;

/// y = x, which all ranks have to know.
struct Alike : nn::Layer<Alike> {
  using axis                             = Ranks;
  static constexpr std::string_view name = "alike";
  static constexpr auto output(auto x) { return x; }
  static void forward(auto& at) { std::ranges::copy(at.x(), at.y().begin()); }
  static void backward(auto& at) { std::ranges::copy(at.dy(), at.dx().begin()); }
};

struct Net : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Ranks, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(Alike{}(words(ids))); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Ranks>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}
