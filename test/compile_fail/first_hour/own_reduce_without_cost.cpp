// own_reduce_without_cost.cpp   expect: chorale: the reduce argument is not a ReduceAlgorithm: it has no cost
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

struct Sums {
  void all_reduce(auto&, Span<float>, Op) const {}
};

int main() {
  auto train   = data::digits(1'000, 1).map(data::scale).batch(64);
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, Sums{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
