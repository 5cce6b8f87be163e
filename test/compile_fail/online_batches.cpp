// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
auto const net = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Points   = BasicBatch<float, float>;
auto const sum = custom_model<Points>({{"offset"}}, [](auto&, Points const&) { return 0.0F; }, optim::SGD{});

// expect: compiles
void use() {
  auto trainer = Trainer{net, MirroredStrategy{Cpu::split(2)}};
  OnlineTraining{trainer}.train(BasicBatch<double, float>{});
}

// expect: chorale: OnlineTraining takes batches of the types that the model takes, such as
void use() {
  auto trainer = Trainer{net, MirroredStrategy{Cpu::split(2)}};
  OnlineTraining{trainer}.train(BasicBatch<int, float>{});
}

// expect: chorale: OnlineTraining needs a Strategy whose replicas each have rows of their own
void use() {
  auto trainer = Trainer{net, local_sgd<4>(MirroredStrategy{Cpu::split(2)}), RingAllReduce{}, LocalTransport{}};
  OnlineTraining{trainer}.train(Points{});
}

// expect: chorale: this model does not predict online. Give its learner output_width and
void use() {
  auto trainer = Trainer{sum, MirroredStrategy{Cpu::split(2)}};
  OnlineTraining{trainer}.predict(Points{}, Span<float>{});
}
