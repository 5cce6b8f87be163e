// averages_kept.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Averaged{optim::Adam{}});

auto saved() {
  auto trainer = Trainer{model, OneDeviceStrategy{Cpu{}}, RingAllReduce{}, LocalTransport{}};
  with_averages(trainer, [&] { trainer.save("averaged.safetensors"); });
}
