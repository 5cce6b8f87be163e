// own_strategy_without_group.cpp   expect: chorale: the strategy argument is not a Strategy: it has no group
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

struct Alone {
  using device    = Cpu;
  using placement = chorale::placement::OnOne;
  int num_replicas() const { return 1; }
  template <class R, class M> void update(R& replica, M& model, Gradients& gradients) const {
    replica.all_reduce(gradients);
    model.optimizer.apply(model.net.variables(), gradients);
  }
  std::vector<Cpu> local_devices() const { return {Cpu{}}; }
};

int main() {
  auto train   = data::digits(1'000, 1).map(data::scale).batch(64);
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, Alone{}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
