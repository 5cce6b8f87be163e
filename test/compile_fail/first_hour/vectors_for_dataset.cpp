// vectors_for_dataset.cpp   expect: chorale: fit, evaluate and predict take a dataset, not a vector. Write data::from_tensors(x, y, width).batch(64)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

int main() {
  auto const x = std::vector<float>(64 * 784);
  auto const y = std::vector<int>(64);
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(x, y);
  trainer.fit(x, {.epochs = 2});
}
