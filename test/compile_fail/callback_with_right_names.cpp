// callback_with_right_names.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Prints {
  void on_epoch_begin(auto&, int) const {}
  void on_epoch_end(auto&, int, Epoch&) const {}
};
void train(data::Digits const& rows) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
  trainer.fit(rows.map(data::scale).batch(8), {}, Prints{});
}
