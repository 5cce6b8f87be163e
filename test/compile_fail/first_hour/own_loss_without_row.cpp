// own_loss_without_row.cpp   expect: chorale: a loss needs float row(Span<float const> y, Span<target const> wanted, Span<float> dy) const
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

struct Absolute {
  using target = float;
  float row(Span<float const> y, Span<float const> wanted) const { return std::abs(y[0] - wanted[0]); }
};

int main() {
  auto train   = data::from_tensors(std::vector<float>(64 * 784), std::vector<float>(64), 784).batch(16);
  auto model   = nn::compile<Net>(Absolute{}, optim::Adam{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
