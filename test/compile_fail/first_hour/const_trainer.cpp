// const_trainer.cpp   expect: chorale: this trainer is const, and fit, evaluate and predict change what it holds
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

int main() {
  auto train         = data::digits(1'000, 1).map(data::scale).batch(64);
  auto model         = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto const trainer = Trainer{model, OneDeviceStrategy{Cpu{}}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
