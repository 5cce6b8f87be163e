// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<4>, nn::Dense<2>> {};

auto rows() { return data::from_tensors(std::vector<float>(40), std::vector<int>(10), 4); }

// expect: compiles
void learn() {
  auto const [train, validation] = data::validation_split(rows().shuffle(10, 1).cache().take(8), 0.2);
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: validation_split takes rows whose order is the same in every epoch, and shuffle gives each epoch
void learn() {
  auto const [train, validation] = data::validation_split(rows().shuffle(10, 1).take(8), 0.2);
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}
