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
  auto const [train, validation] = data::validation_split(rows().shuffle(10, 1), 0.2);
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: validation_split takes rows that come once, and repeat gives each row several times
void learn() {
  auto const [train, validation] = data::validation_split(rows().repeat(2).cache(), 0.2);
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: compiles
void learn() {
  auto const shuffled = rows().shuffle(10, 1, data::Order::fixed);
  auto const train = shuffled.skip(4), validation = shuffled.take(4);
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: take, skip and shard divide rows by their places, and shuffle gives each epoch another order
void learn() {
  auto const validation = rows().shuffle(10).take(4);
  auto const train      = rows();
  auto trainer          = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: take, skip and shard divide rows by their places, and shuffle gives each epoch another order
void learn() {
  auto const validation = rows();
  auto const train      = rows().shuffle(10).prefetch(2).skip(4);
  auto trainer          = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: take, skip and shard divide rows by their places, and shuffle gives each epoch another order
void learn() {
  auto const validation = data::gather(std::vector{rows(), rows()}, 2).shard(2, 0);
  auto const train      = rows();
  auto trainer          = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: take, skip and shard divide rows by their places, and repeat gives each row several times
void learn() {
  auto const validation = rows().repeat(2).take(4);
  auto const train      = rows();
  auto trainer          = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(train.shuffle(10).batch(2), {.epochs = 2}, validate_on(validation.batch(2)));
}

// expect: chorale: validate_on takes the same rows in every epoch, and take, skip or shard of shuffled or repeated
void learn() {
  auto const batches = rows().shuffle(10, 1).batch(2);
  auto trainer       = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(batches.skip(1), {.epochs = 2}, validate_on(batches.take(1)));
}

// expect: chorale: validate_on takes the same rows in every epoch, and take, skip or shard of shuffled or repeated
void learn() {
  auto const batches = rows().shuffle(10, 1).batch(2);
  auto trainer       = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(batches.skip(1), {.epochs = 2}, validate_on(batches.take(1).shuffle(2)));
}
