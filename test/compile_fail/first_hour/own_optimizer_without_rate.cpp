// own_optimizer_without_rate.cpp   expect: chorale: the optimizer argument is not an Optimizer: it has no rate
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

struct Plain {
  static constexpr int slots             = 0;
  static constexpr float global_clipnorm = 0;
  template <class Device> void update(optim::Update const& u) const {
    for (std::size_t i = 0; i < u.values.size(); ++i) u.values[i] -= 0.01F * u.scale * u.gradients[i];
  }
};

int main() {
  auto train   = data::digits(1'000, 1).map(data::scale).batch(64);
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, Plain{}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
