// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: chorale: a metric with a state needs a name, void update(state&, Span<float const> y, Span<target const> wanted) const, with the targets of the loss
struct Click : Field<int, 1> {};
struct Person : Field<float, 8> {};

struct Clicks : nn::Graph<Person> {
  nn::Dense<2> click;
  constexpr auto operator()(auto person) const { return nn::outputs<Click>(click(person)); }
};
auto const model = nn::compile<Clicks>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::AUC<>{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
struct Click : Field<float, 1> {};
struct Person : Field<float, 8> {};

struct Clicks : nn::Graph<Person> {
  nn::Dense<1> click;
  constexpr auto operator()(auto person) const { return nn::outputs<Click>(click(person)); }
};
auto const model = nn::compile<Clicks>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric::AUC<>{}, metric::Precision{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: metric::ConfusionMatrix<Classes> needs at least 1 class
auto const made = metric::ConfusionMatrix<0>{};

// expect: compiles
auto const made = metric::ConfusionMatrix<1>{};

// expect: chorale: metric::MeanIoU<Classes> needs at least 1 class
auto const made = metric::MeanIoU<0>{};

// expect: compiles
auto const made = metric::MeanIoU<1>{};

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
template <class Y> auto learn() {
  auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
  auto trainer     = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  auto const data  = data::from_tensors(std::vector<float>(32), std::vector<Y>(4), 8).batch(2);
  return trainer.fit(data, {.epochs = 1});
}
auto use() { return learn<int>(); }

// expect: chorale: the targets of this dataset are numbers, and the loss takes labels
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
template <class Y> auto learn() {
  auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
  auto trainer     = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  auto const data  = data::from_tensors(std::vector<float>(32), std::vector<Y>(4), 8).batch(2);
  return trainer.fit(data, {.epochs = 1});
}
auto use() { return learn<float>(); }

// expect: chorale: this loss and the field of its output have different element types
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(nn::of<Score>(loss::SparseCrossEntropy{}), optim::SGD{});

// expect: chorale: the loss argument is not a loss. It needs `using target`
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Nothing {};
auto const model = nn::compile<Net>(Nothing{}, optim::SGD{});

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(nn::of<Kind>(loss::SparseCrossEntropy{}), optim::SGD{});

// expect: chorale: nn::of<F>(...) names a field that this network has no output for. Name an output
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(nn::of<Words>(loss::SparseCrossEntropy{}), optim::SGD{});

// expect: compiles
struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<Words> {
  nn::SplitEmbedding<Ranks, 40, 16> table;
  nn::Dense<16> vectors;
  constexpr auto operator()(auto words) const { return nn::outputs<Next>(table.logits(vectors(table(words)))); }
};
auto const model = nn::compile<Net>(loss::SplitSparseCrossEntropy<Ranks>{}, optim::Adam{});

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(nn::of<Score>(loss::MeanSquaredError{}), optim::SGD{});

// expect: chorale: this network has several outputs, so a loss or a metric must name its output
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});

// expect: chorale: each rank has a part of the logits of this output, and its loss needs all of them. Use loss::SplitSparseCrossEntropy<axis> with the axis over which they are split, or put nn::RowDense last
struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<Words> {
  nn::SplitEmbedding<Ranks, 40, 16> table;
  nn::Dense<16> vectors;
  constexpr auto operator()(auto words) const { return nn::outputs<Next>(table.logits(vectors(table(words)))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{});

// expect: compiles
#include <chorale/nn/lowering/losses.hpp>

struct In : Field<float, 4> {};
struct Out : Field<float, 2> {};
struct Net : nn::Graph<In> {
  nn::Dense<2> layer;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(layer(x)); }
};

auto sum(nn::stablehlo::Value y, nn::stablehlo::Value targets, nn::stablehlo::Value real) {
  return nn::stablehlo::term_sum<Net>(nn::of<Out>(loss::MeanSquaredError{}), y, targets, {}, real);
}

// expect: compiles
struct Absolute {
  using target = float;
  float row(Span<float const> y, Span<float const> wanted, Span<float> dy) const {
    dy[0] = y[0] < wanted[0] ? -1.0F : 1.0F;
    return std::abs(y[0] - wanted[0]);
  }
};

float sum(float const* y, float const* wanted, float* dy) { return loss::sum_of<Cpu>(Absolute{}, 4, 1, y, wanted, dy); }

// expect: chorale: this loss is not written in operations of StableHLO, so no PJRT device computes it. Use losses
#include <chorale/nn/lowering/losses.hpp>

struct In : Field<float, 4> {};
struct Out : Field<float, 2> {};
struct Net : nn::Graph<In> {
  nn::Dense<2> layer;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(layer(x)); }
};

struct Cubed {
  using target = float;
  float row(Span<float const>, Span<float const>, Span<float>) const { return 0; }
};

auto sum(nn::stablehlo::Value y, nn::stablehlo::Value targets, nn::stablehlo::Value real) {
  return nn::stablehlo::term_sum<Net>(nn::of<Out>(Cubed{}), y, targets, {}, real);
}

// expect: chorale: a loss needs float row(Span<float const> y, Span<target const> wanted, Span<float> dy) const
struct Absolute {
  using target = float;
  float row(Span<float const> y, Span<float const> wanted) const { return std::abs(y[0] - wanted[0]); }
};

float sum(float const* y, float const* wanted, float* dy) { return loss::sum_of<Cpu>(Absolute{}, 4, 1, y, wanted, dy); }

// expect: compiles
struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<Words> {
  nn::SplitEmbedding<Ranks, 40, 16> table;
  nn::Dense<16> vectors;
  constexpr auto operator()(auto words) const { return nn::outputs<Next>(table.logits(vectors(table(words)))); }
};
auto const model = nn::compile<Net>(loss::SplitSparseCrossEntropy<Ranks>{}, optim::Adam{});

// expect: compiles
auto const rule = optim::LossScaled{optim::Grouped{optim::Averaged{optim::Adam{}}, {optim::frozen("dense/*")}}};

// expect: chorale: optim::LossScaled does not run under ParameterServerStrategy
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}});

auto connect() { return Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}}; }

void learn(Batch const& batch) {
  auto live   = connect();
  auto copies = live.create(model);
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.strategy().update(replica, copy, gradients);
      },
      copies);
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}});

auto connect() { return Live{MultiWorkerMirroredStrategy{Cluster::local(2)}, RingAllReduce{}, LocalTransport{}}; }

void learn(Batch const& batch) {
  auto live   = connect();
  auto copies = live.create(model);
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.strategy().update(replica, copy, gradients);
      },
      copies);
}

// expect: chorale: optim::LossScaled does not fit a Reduce that leaves a part of the gradients
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto copies() {
  auto live = Live{MirroredStrategy{}, TopK<10>{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}}));
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto copies() {
  auto live = Live{MirroredStrategy{}, Compressed<bf16>{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}}));
}

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Wide : Field<float, 4> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Wide>(words(ids)); }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});

// expect: chorale: this loss takes another number of targets for its output than the field has
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Wide : Field<float, 5> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Wide>(words(ids)); }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});

// expect: chorale: metric::AUC<Thresholds> needs at least 2 thresholds
auto const made = metric::AUC<1>{};

// expect: compiles
auto const made = metric::AUC<2>{};

// expect: compiles
auto const made = TopK<10, chorale::bf16>{};

// expect: chorale: TopK<PerMille, W> sends values as W: float, bf16 or fp16
auto const made = TopK<10, int>{};

// expect: chorale: metric::TopKAccuracy<K> needs at least 1
auto const made = metric::TopKAccuracy<0>{};

// expect: chorale: TopK<PerMille> sends 1 to 1000 of a thousand elements
auto const made = TopK<0>{};

// expect: compiles
auto const made = TopK<1>{};

// expect: compiles
auto const made = metric::TopKAccuracy<1>{};
