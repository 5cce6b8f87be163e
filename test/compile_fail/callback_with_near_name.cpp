// callback_with_near_name.cpp   expect: chorale: a callback has on_epoch_start, which fit never calls. Write on_epoch_begin(trainer, epoch)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_epoch_start(auto&, int) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}
