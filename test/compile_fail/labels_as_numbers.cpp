// labels_as_numbers.cpp   expect: chorale: the targets of this dataset are numbers, and the loss takes labels
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
template <class Y> auto learn() {
  auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
  auto trainer     = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  auto const data  = data::from_tensors(std::vector<float>(32), std::vector<Y>(4), 8).batch(2);
  return trainer.fit(data, {.epochs = 1});
}
auto use() { return learn<float>(); }
