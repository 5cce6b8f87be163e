// SPDX-License-Identifier: Apache-2.0
//
// The CNN of bench/libtorch; support/libtorch_peer.py has it in Python. Empty where libtorch is not installed.
#pragma once

#ifdef CHORALE_HAVE_LIBTORCH

#include <chorale/libtorch/model.hpp>
#include <chorale/optim/sgd.hpp>

namespace bench {

/// 2.4 million parameters in 8 buckets: seven convolutions and three dense layers.
struct NetImpl : torch::nn::Module {
  torch::nn::Sequential layers;

  NetImpl() {
    auto const conv = [&](int in, int out) {
      layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
      layers->push_back(torch::nn::ReLU());
    };
    auto const pool  = [&] { layers->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2))); };
    auto const dense = [&](int in, int out) { layers->push_back(torch::nn::Linear(in, out)); };
    conv(1, 32), pool();                                    // (B, 32, 14, 14)
    conv(32, 64), pool();                                   // (B, 64, 7, 7)
    conv(64, 128), conv(128, 128), conv(128, 256), pool();  // (B, 256, 3, 3)
    conv(256, 256), conv(256, 256);
    layers->push_back(torch::nn::Flatten());  // (B, 2304)
    dense(2304, 256), layers->push_back(torch::nn::ReLU());
    dense(256, 256), layers->push_back(torch::nn::ReLU());
    dense(256, 10);  // (B, 10)
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor const& x) { return layers->forward(x); }
};
TORCH_MODULE(Net);

/// The network with the sum of its cross entropies. With Adam, whose steps do not shrink with a gradient, other rounding
/// would change variables by more than the comparison with one process allows.
inline auto libtorch_model() {
  auto const loss = [](Net& net, chorale::Batch const& batch) {
    auto const x = chorale::libtorch::tensor(batch.x, {-1, 1, 28, 28});
    auto const y = chorale::libtorch::tensor(batch.y, {-1}).to(torch::kLong);
    return torch::nll_loss(net(x).log_softmax(1), y, {}, at::Reduction::Sum);
  };
  return chorale::libtorch::model<chorale::Batch>([] { return Net{}; }, loss,
                                                  chorale::optim::SGD{.learning_rate = 0.01F, .momentum = 0.9F});
}

}  // namespace bench

#endif
