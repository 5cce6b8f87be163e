// SPDX-License-Identifier: Apache-2.0
//
// The network and the loop of README's program, written for libtorch: bench/compile compiles it as a peer.
#include <torch/torch.h>

#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Conv2d convolution{register_module("convolution", torch::nn::Conv2d(1, 32, 3))};
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(32 * 13 * 13, 64))};
  torch::nn::Linear outputs{register_module("outputs", torch::nn::Linear(64, 10))};

  torch::Tensor forward(torch::Tensor x) {                  // (B, 1, 28, 28)
    x = torch::max_pool2d(torch::relu(convolution(x)), 2);  // (B, 32, 13, 13)
    return outputs(torch::relu(hidden(x.flatten(1))));      // (B, 10)
  }
};

int main() {
  auto train = torch::data::datasets::MNIST("data/mnist")
                   .map(torch::data::transforms::Normalize<>(0, 1))
                   .map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader(std::move(train), torch::data::DataLoaderOptions{64});
  auto net    = Net{};
  auto adam   = torch::optim::Adam{net.parameters(), torch::optim::AdamOptions{1e-3}};
  for (auto const& batch : *loader) {
    adam.zero_grad();
    auto const loss = torch::nn::functional::cross_entropy(net.forward(batch.data), batch.target);
    loss.backward();
    adam.step();
    std::printf("loss %.4f\n", loss.item<double>());
  }
}
