// callback_before_a_step.cpp   expect: chorale: a callback has on_batch_begin, and fit calls nothing before a step. Write on_step_end(trainer, end)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_batch_begin(auto&) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}
