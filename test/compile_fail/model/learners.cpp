// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

auto create() {
  auto live = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::AdamW{}));
}

// expect: chorale: under ParameterServerStrategy no gradients leave ahead of the others
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}));
  PerReplica<Sum<float>> losses = live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient_ahead(copy, batch);
        live.update(replica, copy, gradients);
        return loss;
      },
      copies);
  live.reduce(losses);
}

// expect: chorale: optim::Lamb takes the norm of each whole variable, but under ShardedStrategy a replica updates a shard of them. Use MultiWorkerMirroredStrategy, or optim::AdamW
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

auto create() {
  auto live = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Lamb{}));
}

// expect: chorale: optim::Lamb takes the norm of each whole variable, and does not run where variables are updated in pieces, as by the servers of ParameterServerStrategy. Use MultiWorkerMirroredStrategy, or optim::AdamW
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Lamb{});

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
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Lamb{});

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

// expect: chorale: this model does not predict
using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});
template <class Data> auto outputs(Data const& data) {
  auto trainer = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  return trainer.predict(data);
}
auto use() { return outputs(data::from_tensors(std::vector<float>(4), std::vector<float>(4), 1).batch(2)); }

// expect: compiles
auto create() {
  auto live = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(custom_model<Batch>(
      {{"slope", {1}}},
      [](auto& step, auto const& batch) {
        for (std::size_t r = 0; r < batch.rows; ++r) step.gradient(0)[0] += batch.x[r];
        return 0.0F;
      },
      optim::Adam{}));
}

// expect: chorale: under ShardedStrategy<Zero::two> and <Zero::three> the layers of a network take turns in a few buffers, and a model without layers reads any variable at any time. Use ShardedStrategy<Zero::one>, or a network of nn
auto create() {
  auto live = Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(custom_model<Batch>(
      {{"slope", {1}}},
      [](auto& step, auto const& batch) {
        for (std::size_t r = 0; r < batch.rows; ++r) step.gradient(0)[0] += batch.x[r];
        return 0.0F;
      },
      optim::Adam{}));
}

// expect: compiles
using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});

// expect: chorale: the learner of a custom_model is a function of (step, batch)
using Points       = BasicBatch<float, float>;
auto const loss_of = [](Points const& batch) { return static_cast<float>(batch.rows); };
auto const model   = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});

// expect: compiles
using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto&, Points const& batch) { return static_cast<float>(batch.rows); };
auto const model   = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});

// expect: chorale: under CentralStorageStrategy replicas read
using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});
auto train() { return Trainer{model, CentralStorageStrategy{}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});
auto train() { return Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: optim::LossScaled does not fit custom_model
using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::LossScaled{optim::SGD{}});

// expect: compiles
using Points = BasicBatch<float, float>;
struct Nothing {
  static constexpr std::size_t output_width = 1;
  float learn(auto&, Points const&) { return 0; }
  Span<float const> predict(Variables const&, Points const& batch) { return batch.x; }
};
auto const model = custom_model<Points>({{"offset"}}, Nothing{}, optim::SGD{});
template <class Data> auto outputs(Data const& data) {
  auto trainer = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  return trainer.predict(data);
}
auto use() { return outputs(data::from_tensors(std::vector<float>(4), std::vector<float>(4), 1).batch(2)); }

// expect: chorale: the optimizer argument is not an Optimizer
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, 0.01F);

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.01F});

// expect: compiles
auto const rule = optim::SGD{.learning_rate = [](optim::Moment t) { return 0.1F / static_cast<float>(1 + t.step); }};

// expect: chorale: a learning rate is a number, a schedule of chorale::optim, or a function of an optim::Moment that returns a float
auto const rule = optim::SGD{.learning_rate = [](long step) { return 0.1F / static_cast<float>(1 + step); }};

// expect: chorale: under ShardedStrategy<Zero::two> and <Zero::three> the thread that computes also sends, as its buffers are used again in the same step. Use the Reduce without OwnThread
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

auto connect() {
  return Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, OwnThread<RingAllReduce>{}, LocalTransport{}};
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

auto connect() { return Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}));
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.update(replica, copy, gradients);
      },
      copies);
}

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::ZeroPadding2D<1, 1, 1, 1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: ZeroPadding2D<top, bottom, left, right> takes images (B, H, W, C), and pads of at least 0
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::ZeroPadding2D<1, 1, 1, 1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
