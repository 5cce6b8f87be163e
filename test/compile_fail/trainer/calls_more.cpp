// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

// expect: chorale: a callback has on_batch_begin, and fit calls nothing before a step. Write on_step_end(trainer, end)
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_batch_begin(auto&) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}

// expect: chorale: a callback has on_train_batch_end, which fit never calls. Write on_step_end(trainer, end)
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_train_batch_end(int, int) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}

// expect: chorale: a callback has on_epoch_start, which fit never calls. Write on_epoch_begin(trainer, epoch)
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_epoch_start(auto&, int) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}

// expect: chorale: a callback has on_fit_end, but fit cannot call it. Write on_fit_end(auto& trainer, History const& history)
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_fit_end(auto&) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_epoch_begin(auto&, int) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
auto const net = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Points   = BasicBatch<float, float>;
auto const sum = custom_model<Points>({{"offset"}}, [](auto&, Points const&) { return 0.0F; }, optim::SGD{});

void use() {
  auto trainer = Trainer{net, MirroredStrategy{Cpu::split(2)}};
  OnlineTraining{trainer}.train(BasicBatch<double, float>{});
}

// expect: chorale: OnlineTraining takes batches of the types that the model takes, such as
struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
auto const net = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Points   = BasicBatch<float, float>;
auto const sum = custom_model<Points>({{"offset"}}, [](auto&, Points const&) { return 0.0F; }, optim::SGD{});

void use() {
  auto trainer = Trainer{net, MirroredStrategy{Cpu::split(2)}};
  OnlineTraining{trainer}.train(BasicBatch<int, float>{});
}

// expect: chorale: OnlineTraining needs a Strategy whose replicas each have rows of their own
struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
auto const net = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Points   = BasicBatch<float, float>;
auto const sum = custom_model<Points>({{"offset"}}, [](auto&, Points const&) { return 0.0F; }, optim::SGD{});

void use() {
  auto trainer = Trainer{net, local_sgd<4>(MirroredStrategy{Cpu::split(2)}), RingAllReduce{}, LocalTransport{}};
  OnlineTraining{trainer}.train(Points{});
}

// expect: chorale: this model does not predict online. Give its learner output_width and
struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
auto const net = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Points   = BasicBatch<float, float>;
auto const sum = custom_model<Points>({{"offset"}}, [](auto&, Points const&) { return 0.0F; }, optim::SGD{});

void use() {
  auto trainer = Trainer{sum, MirroredStrategy{Cpu::split(2)}};
  OnlineTraining{trainer}.predict(Points{}, Span<float>{});
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), MirroredStrategy{Cpu::split(2)},
                         RingAllReduce{}, LocalTransport{}};
  auto next    = retarget(std::move(trainer), MirroredStrategy{Cpu::split(3)}, RingAllReduce{}, LocalTransport{});
  next.stop();
}

// expect: chorale: retarget moves the variables of replicas, but under ParameterServerStrategy
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}),
                         ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto next    = retarget(std::move(trainer), MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{});
  next.stop();
}

// expect: chorale: retarget does not move the parts of gradients that a Reduce such as TopK
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), MirroredStrategy{Cpu::split(2)},
                         TopK<10>{}, LocalTransport{}};
  auto next    = retarget(std::move(trainer), MirroredStrategy{Cpu::split(3)}, RingAllReduce{}, LocalTransport{});
  next.stop();
}

// expect: chorale: retarget moves copies of a whole network, but under pipelined<Schedule>() each
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(a(x))); }
};
using Stages = Mesh<Axis<"stage", 2>>;

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}), MirroredStrategy{Cpu::split(2)},
                         RingAllReduce{}, LocalTransport{}};
  auto next = retarget(std::move(trainer), MeshStrategy{Stages{Cpu::split(2)}, pipelined<OneForwardOneBackward<4>>()},
                       RingAllReduce{}, LocalTransport{});
  next.stop();
}

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
auto train() { return Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: the strategy argument is not a Strategy
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
struct Nothing {};
auto train() { return Trainer{model, Nothing{}, RingAllReduce{}, LocalTransport{}}; }
