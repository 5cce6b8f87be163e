// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/solver.hpp>
#include <chorale/strategy/parameter_server.hpp>

#include "test/compile_fail/gpu.hpp"

#include <vector>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto over(auto strategy) { return Trainer{model, strategy, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
void save() {
  auto trainer = over(ShardedStrategy<Zero::three>{Cpu::logical(2)});
  trainer.save("net.safetensors");
}

// expect: chorale: every replica has a shard of the variables, which save() brings together: call it of a Trainer that is not const, in every process
void save() {
  auto const trainer = over(ShardedStrategy<Zero::three>{Cpu::logical(2)});
  trainer.save("net.safetensors");
}

// expect: compiles
void set() { over(MirroredStrategy{}).set_learning_rate(0.1F); }

// expect: chorale: under ParameterServerStrategy the servers apply the optimizer, and a worker cannot set its learning rate
void set() { over(ParameterServerStrategy{Cluster::local(2, 1)}).set_learning_rate(0.1F); }

// expect: chorale: the model argument is not a Model, but a dataset, which fit takes
auto const batches = data::from_tensors(std::vector<float>(64), std::vector<int>(8), 8).batch(4);
void save() {
  auto trainer = Trainer{batches, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  trainer.save("net.safetensors");
}

// expect: compiles
void go_on() { join_retargeted(model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}).stop(); }

// expect: chorale: retarget moves what is in host memory
struct OverDevices : LocalTransport {
  static constexpr bool reaches(Memory) { return true; }
};
void go_on() { join_retargeted(model, MirroredStrategy<Gpu>{}, RingAllReduce{}, OverDevices{}).stop(); }
