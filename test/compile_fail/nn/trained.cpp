// SPDX-License-Identifier: Apache-2.0
//
// Networks with a mistake in programs that train them.
#include <chorale/chorale.hpp>

#include <cstdint>
#include <vector>

using namespace chorale;

struct Steps : Field<float, 6, 4> {};
struct Kind : Field<int, 1> {};

template <class Net> void train(auto const& data) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}), OneDeviceStrategy{Cpu{}}};
  trainer.fit(data, {.epochs = 1});
}
template <class... Layers> void train_list() {
  struct Net : nn::Sequential<Layers..., nn::Dense<10>> {};
  train<Net>(data::digits(100, 1).map(data::scale).batch(20));
}
template <class Target, class... Layers> struct Graph : nn::Graph<Steps> {
  nn::Block<Layers...> layers;
  nn::Dense<10> logits;
  constexpr auto operator()(auto x) const { return nn::outputs<Target>(logits(layers(x))); }
};
template <class Target, class... Layers> void train_graph() {
  auto const labels = std::vector<std::int64_t>(10);
  train<Graph<Target, Layers...>>(data::from_fields<Steps, Target>(std::vector<float>(240), labels).batch(5));
}

// expect: compiles
void run() { train_list<nn::Input<28, 28, 1>, nn::Conv2D<1, 1>, nn::MaxPool2D<2>, nn::Flatten>(); }

// expect: chorale: Conv2D<Filters, Kernel> needs both to be at least 1
void run() { train_list<nn::Input<28, 28, 1>, nn::Conv2D<2, 0>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten>(); }

// expect: chorale: a pool needs a window of at least 1
void run() { train_list<nn::Input<28, 28, 1>, nn::Conv2D<1, 1>, nn::ReLU, nn::MaxPool2D<0>, nn::Flatten>(); }

// expect: chorale: Dense<Units> needs at least one unit
void run() { train_list<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<-1>, nn::ReLU>(); }

// expect: chorale: a Sequential begins with nn::Input<...>, the shape of one row
void run() { train_list<nn::Conv2D<1, 1>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten>(); }

// expect: chorale: a Sequential needs at least one layer after nn::Input
struct None : nn::Sequential<nn::Input<28, 28, 1>> {};
void run() { train<None>(data::digits(100, 1).map(data::scale).batch(20)); }

// expect: compiles
void run() { train_graph<Kind, nn::Bidirectional<nn::GRU<2>>>(); }

// expect: chorale: a Field has elements of float, int or std::uint8_t
struct Label : Field<std::int64_t, 1> {};
void run() { train_graph<Label, nn::Bidirectional<nn::GRU<2>>>(); }

// expect: chorale: GRU<units> needs at least 1
void run() { train_graph<Kind, nn::Bidirectional<nn::GRU<-1>>>(); }

// expect: chorale: Dense<Units> needs at least one unit
void run() { train_graph<Kind, nn::TimeDistributed<nn::Dense<-2>>, nn::Flatten>(); }
