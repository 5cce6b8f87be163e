// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include <array>
#include <cstddef>
#include <string_view>

using namespace chorale;

struct Point : Field<float, 2> {};
struct Out : Field<float, 1> {};
struct List : nn::Sequential<nn::Input<2>, nn::Dense<1>> {};
template <class... Layers> struct Graph : nn::Graph<nn::Differentiable<Point, nn::OnRequest>> {
  nn::Block<Layers...> layers;
  nn::Dense<1> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(last(layers(x))); }
};
template <class... Layers> auto model() {
  return nn::compile<Graph<Layers...>>(loss::MeanSquaredError{}, optim::SGD{});
}
using Numbers = Rows<Point, Out>;

template <std::size_t n> struct Learner {
  static constexpr std::array<std::string_view, n> metric_names{};
  static float learn(auto&, Batch const&) { return 0; }
};

// expect: compiles
auto copy() { return custom_model<Batch>({{"slope"}}, Learner<14>{}, optim::SGD{}).instantiate(Cpu{}, 1); }

// expect: chorale: a model has at most 14 metrics
auto copy() { return custom_model<Batch>({{"slope"}}, Learner<15>{}, optim::SGD{}).instantiate(Cpu{}, 1); }

// expect: chorale: this model computes on host memory, but the strategy computes on another device. Use a strategy over Cpu
#include "test/compile_fail/gpu.hpp"
auto copy() { return custom_model<Batch>({{"slope"}}, Learner<1>{}, optim::SGD{}).instantiate(Gpu{}, 1); }

// expect: compiles
auto outputs(Numbers const& rows) { return model<nn::BatchNorm<>>().instantiate(Cpu{}, 1).outputs(rows); }

// expect: chorale: outputs(batch) and gradient_by(F, batch) compute on one replica alone, and nn::SyncBatchNorm adds up over all. Use nn::BatchNorm
auto outputs(Numbers const& rows) { return model<nn::SyncBatchNorm<>>().instantiate(Cpu{}, 1).outputs(rows); }

// expect: compiles
auto create() {
  auto live = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<List>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: chorale: optim::Averaged keeps averages of all variables beside them, but under ShardedStrategy a replica keeps a shard of its state. Use MultiWorkerMirroredStrategy
auto create() {
  auto live = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<List>(loss::MeanSquaredError{}, optim::Averaged{optim::SGD{}}));
}

// expect: chorale: nn::SyncBatchNorm does not run under ParameterServerStrategy, whose workers do not wait for one another in a step. Use MultiWorkerMirroredStrategy
#include <chorale/strategy/parameter_server.hpp>
void learn(Numbers const& rows) {
  auto live   = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(model<nn::SyncBatchNorm<>>());
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, rows);
        live.strategy().update(replica, copy, gradients);
      },
      copies);
}
