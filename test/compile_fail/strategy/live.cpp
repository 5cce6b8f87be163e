// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/simulated.hpp>

#include <string>
#include <vector>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto const samples = data::from_tensors(std::vector<float>(64), std::vector<int>(8), 8).batch(4);

auto two() { return MirroredStrategy{Cpu::logical(2)}; }
auto servers() { return ParameterServerStrategy{Cluster::local(2, 1)}; }

template <class R = RingAllReduce, class T = LocalTransport>
auto connected(auto strategy, R reduce = {}, T transport = {}) {
  return Live{strategy, reduce, transport};
}

void step(auto live, auto&& of_replica) {
  auto copies = live.create(model);
  live.run(of_replica, copies);
}

using Made = std::remove_const_t<decltype(model)>;
struct Whole {
  using batch                        = Batch;
  template <class D> using instance  = Made::instance<D>;
  static constexpr auto metric_names = Made::metric_names;
  static constexpr auto plan         = Made::plan;

  optim::SGD optimizer;

  auto instantiate(auto const& device, Seed seed) const { return model.instantiate(device, seed); }
};

auto const scale = ServerUpdate{"scale", [](ServerValues values, float by) { values[0][0] *= by; }};

// expect: compiles
void make() { connected(two()).create(Whole{}); }

// expect: chorale: under ShardedStrategy a copy has the optimizer's state of one shard, and this model has no instantiate_shard
void make() { connected(ShardedStrategy<Zero::one>{Cpu::logical(2)}).create(Whole{}); }

// expect: compiles
struct Averaging : MirroredStrategy<> {
  using MirroredStrategy::MirroredStrategy;
  void finish(auto&, auto&) const {}
};
void end_epoch() {
  auto live   = connected(Averaging{});
  auto copies = live.create(model);
  live.finish(copies);
}

// expect: chorale: finish(replica, model) of this Strategy is not const, and would not be called
struct Averaging : MirroredStrategy<> {
  using MirroredStrategy::MirroredStrategy;
  void finish(auto&, auto&) {}
};
void end_epoch() {
  auto live   = connected(Averaging{});
  auto copies = live.create(model);
  live.finish(copies);
}

// expect: compiles
auto values() { return connected(two()).gather(PerReplica<int>{2}); }

// expect: chorale: values that other processes get are plain data
auto values() { return connected(two()).gather(PerReplica<std::string>{2}); }

// expect: chorale: values that other processes get are plain data
auto values() { return connected(servers()).gather(PerReplica<std::string>{2}); }

// expect: compiles
auto replicas() {
  return Live{MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}}, RingAllReduce{}, SharedMemoryTransport{}}
      .num_replicas();
}

// expect: chorale: this Reduce cannot run among some of the ranks of this Transport, as MeshStrategy needs it along the data axis
auto replicas() {
  return Live{MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}}, CopiedAllReduce{}, SharedMemoryTransport{}}
      .num_replicas();
}

// expect: compiles
void learn() {
  step(connected(two(), OwnThread<RingAllReduce>{}), [](auto& replica, auto& copy) {
    auto gradients = copy.gradients();
    replica.all_reduce(gradients);
  });
}

// expect: chorale: ranks of a SimulatedTransport take turns in one thread; without OwnThread the reduce runs there
void learn() {
  step(connected(two(), OwnThread<RingAllReduce>{}, SimulatedTransport{}), [](auto& replica, auto& copy) {
    auto gradients = copy.gradients();
    replica.all_reduce(gradients);
  });
}

// expect: compiles
void agree() {
  step(connected(two()), [](auto& replica, auto& copy) {
    auto scratch = copy.gradients();
    replica.average(copy.net.variables(), scratch, 1);
  });
}

// expect: chorale: average() needs a Reduce that gives sums as they are, e.g. RingAllReduce
void agree() {
  step(connected(two(), TopK<10>{}), [](auto& replica, auto& copy) {
    auto scratch = copy.gradients();
    replica.average(copy.net.variables(), scratch, 1);
  });
}

// expect: chorale: under ParameterServerStrategy servers have the variables, and nobody averages copies of them
void agree() {
  step(connected(servers()), [](auto& replica, auto& copy) {
    auto scratch = copy.gradients();
    replica.average(copy.net.variables(), scratch, 1);
  });
}

// expect: compiles
void change() {
  step(connected(servers()), [](auto& replica, auto& copy) {
    replica.update_on_server(copy.net.variables(), scale, {"dense/kernel"}, 0.5F);
  });
}

// expect: chorale: these are not the arguments of this ServerUpdate: update_on_server(variables, update, names, arguments...)
void change() {
  step(connected(servers()),
       [](auto& replica, auto& copy) { replica.update_on_server(copy.net.variables(), scale, {"dense/kernel"}); });
}

// expect: compiles
auto learn() {
  auto live   = connected(two(), TopK<10>{});
  auto copies = live.create(model);
  auto mean   = 0.0;
  for (auto& shares : live.distribute(samples)) {
    PerReplica<Sum<float>> losses = live.run(
        [&](auto& replica, auto& copy, auto& share) {
          auto [loss, gradients] = replica.value_and_gradient(copy, share);
          live.update(replica, copy, gradients);
          return loss;
        },
        copies, shares);
    mean = live.reduce(losses).mean();
  }
  live.finish(copies);
  return live.is_chief() ? mean : 0;
}

// expect: chorale: this Strategy cannot use this Reduce, which rounds, leaves out or orders what it adds up
auto learn() {
  auto live   = connected(servers(), TopK<10>{});
  auto copies = live.create(model);
  auto mean   = 0.0;
  for (auto& shares : live.distribute(samples)) {
    PerReplica<Sum<float>> losses = live.run(
        [&](auto& replica, auto& copy, auto& share) {
          auto [loss, gradients] = replica.value_and_gradient(copy, share);
          live.update(replica, copy, gradients);
          return loss;
        },
        copies, shares);
    mean = live.reduce(losses).mean();
  }
  live.finish(copies);
  return live.is_chief() ? mean : 0;
}
