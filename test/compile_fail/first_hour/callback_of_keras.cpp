// callback_of_keras.cpp   expect: chorale: a callback has on_epoch_start, which fit never calls. Write on_epoch_begin(trainer, epoch)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

struct Printer {
  void on_epoch_start(auto&, int epoch) { std::printf("%d\n", epoch); }
  void on_epoch_end(auto&, int epoch, Epoch&) { std::printf("%d\n", epoch); }
};

int main() {
  auto train   = data::digits(1'000, 1).map(data::scale).batch(64);
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2}, Printer{});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
