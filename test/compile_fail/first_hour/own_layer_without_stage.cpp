// own_layer_without_stage.cpp   expect: chorale: a layer of this nn::Sequential has no stage
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Twice {
  static constexpr std::string_view name = "twice";
  template <class In> static constexpr void check() {}
  template <class In> using apply = nn::SameShape<In>;
};
struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, Twice, nn::Dense<10>> {};

int main() {
  auto train   = data::digits(1'000, 1).map(data::scale).batch(64);
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
