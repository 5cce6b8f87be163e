// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::average(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: average takes numbers of one shape
struct In : Field<float, 4> {};
struct Other : Field<float, 5> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::average(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Averaged{optim::Adam{}});

auto saved() {
  auto trainer = Trainer{model, OneDeviceStrategy{Cpu{}}, RingAllReduce{}, LocalTransport{}};
  with_averages(trainer, [&] { trainer.save("averaged.safetensors"); });
}

// expect: chorale: with_averages needs an optimizer that keeps moving averages: optim::Averaged{optimizer}
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{});

auto saved() {
  auto trainer = Trainer{model, OneDeviceStrategy{Cpu{}}, RingAllReduce{}, LocalTransport{}};
  with_averages(trainer, [&] { trainer.save("averaged.safetensors"); });
}

// expect: chorale: put optim::Averaged next to the optimizer, and others around it: optim::Grouped{optim::Averaged{optim::Adam{}}, groups}
auto const rule = optim::Averaged{optim::Grouped{optim::Adam{}, {optim::frozen("dense/*")}}};

// expect: chorale: this dimension is sharded over another axis. Shard another dimension, or put nn::all_gather over that axis before it
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Context    = Axis<"context", 2>;
    auto const shard = nn::scatter<Tensor, 0>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::all_gather<Context>(nn::scatter<Context, 0>(shard))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Context    = Axis<"context", 2>;
    auto const shard = nn::scatter<Tensor, 0>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::all_gather<Context>(nn::scatter<Context, 1>(shard))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LayerNormWith<nn::EpsilonPower<12>> norm;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(norm(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::RMSNorm<nn::Epsilon<10>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 32, nn::GlorotNormal> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GroupNorm<2, nn::Epsilon<10>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: GroupNorm takes a number of groups and one option, Epsilon<millionths>
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GroupNorm<2, nn::Momentum<90>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
auto const made = nn::Groups<1>{};

// expect: chorale: put optim::LossScaled around optim::Grouped, not into it: optim::LossScaled{optim::Grouped{optimizer, groups}}
auto const rule = optim::Grouped{optim::LossScaled{optim::Adam{}}, {optim::frozen("dense/*")}};

// expect: chorale: Groups<N> needs at least 1
auto const made = nn::Groups<0>{};

// expect: chorale: optim::Grouped does not run under ParameterServerStrategy, whose servers do not know the names of variables. Use MultiWorkerMirroredStrategy
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};
auto const model =
    nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Grouped{optim::SGD{}, {optim::frozen("dense/*")}});

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
auto const model =
    nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Grouped{optim::SGD{}, {optim::frozen("dense/*")}});

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

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::BatchNorm<nn::Momentum<90>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Momentum<Kept> needs a number above 0 and below 1
auto const made = nn::Momentum<100>{};

// expect: compiles
auto const made = nn::Momentum<90>{};

// expect: compiles
#include <chorale/nn/layers/batch_norm.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto connect() { return Live{local_sgd<8>(MirroredStrategy{}), RingAllReduce{}, LocalTransport{}}; }

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
#include <chorale/nn/layers/batch_norm.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto connect() { return Live{MirroredStrategy{}, Reproducible<>{}, LocalTransport{}}; }

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

// expect: chorale: this value is Partial: each replica has a part of it, and the norm of a part is not that of the whole. Reduce it first: all_reduce makes it Mirrored, reduce_scatter makes it Sharded
double norm(Span<float const> gradients) {
  return squared_norm(placement::Placed<placement::Partial<Op::sum>>{gradients});
}

// expect: chorale: a layer needs whole vectors, but each rank has a part of them, as nn::ColumnDense and logits(x) of an nn::SplitEmbedding give them. Put nn::RowDense before it; activations, a + b, a - b, a * b and nn::ColumnHeads take parts
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 32> widen;
  nn::RowDense<Ranks, 24> narrow;
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(norm(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: GroupNorm<groups> takes numbers (B, .., C), with C a multiple of the groups
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::GroupNorm<4> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 32> widen;
  nn::RowDense<Ranks, 24> narrow;
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(norm(narrow(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
double norm(Span<float const> gradients) { return squared_norm(placement::Placed<placement::Mirrored>{gradients}); }

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::GroupNorm<3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: batch normalization does not run under ParameterServerStrategy
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

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
#include <chorale/nn/layers/batch_norm.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

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

// expect: chorale: SyncBatchNorm needs all replicas in every step
#include <chorale/nn/layers/batch_norm.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::SyncBatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto connect() { return Live{local_sgd<8>(MirroredStrategy{}), RingAllReduce{}, LocalTransport{}}; }

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

// expect: chorale: SyncBatchNorm does not go with Reproducible
#include <chorale/nn/layers/batch_norm.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::SyncBatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto connect() { return Live{MirroredStrategy{}, Reproducible<>{}, LocalTransport{}}; }

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
struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::BatchNorm<> first, second;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(second(first(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: an nn::BatchNorm is called twice, which would move its statistics twice. Use two layers
struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::BatchNorm<> norm;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(norm(norm(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ShardedStrategy<Zero::two>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}));
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.update(replica, copy, gradients);
      },
      copies);
}

// expect: chorale: a split kernel cannot begin orthogonal, which is known of whole matrices alone. Use GlorotUniform
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 32, nn::Orthogonal> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::SyncBatchNorm adds up over all replicas in the middle of a step, in which units are on their way under ShardedStrategy<Zero::two> and <Zero::three>. Use nn::BatchNorm, or Zero::one
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::SyncBatchNorm<>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ShardedStrategy<Zero::two>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}));
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.update(replica, copy, gradients);
      },
      copies);
}
