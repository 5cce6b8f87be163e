// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The CNN of the other benchmarks, trained with libtorch. Empty where libtorch is not installed.
#ifdef CHORALE_HAVE_LIBTORCH

#include <torch/torch.h>

#include <malloc.h>

#include <climits>
#include <cstdint>
#include <memory>

namespace bench {

/// One process that trains Conv2D(32, 3) ReLU, MaxPool 2, Flatten, Dense 64 ReLU, Dense 10 with Adam, in float32.
///
///   auto peer = LibtorchCnn{LibtorchCnn::Mode::tuned, 2};
///   peer.run(20);                                        // to warm up
///
/// keeps   as_written is what a tutorial has. tuned flushes denormals, works in place, drops gradients instead of
///         zeroing them, and keeps freed memory: glibc otherwise maps and unmaps tensors of 5 MB in each step.
///         Threads, denormals and malloc belong to the process: measure as_written first, or in one of its own.
///         The BLAS is the system's choice: with the reference BLAS a step takes three times as long as with OpenBLAS
/// cost    a tensor of images is one batch, which is used in every step: reading data is not measured
class LibtorchCnn {
 public:
  enum class Mode { as_written, tuned };

  explicit LibtorchCnn(Mode mode, int threads = 1, std::int64_t batch = 64) : mode_{mode} {
    at::set_num_threads(threads);
    if (mode_ == Mode::tuned) {
      at::globalContext().setFlushDenormal(true);
      ::mallopt(M_MMAP_MAX, 0);              // tensors come from the heap,
      ::mallopt(M_TRIM_THRESHOLD, INT_MAX);  // which does not shrink
      ::mallopt(M_TOP_PAD, 64 << 20);
    }
    torch::manual_seed(1);
    network_   = std::make_shared<Network>(mode_);
    optimizer_ = std::make_unique<torch::optim::Adam>(network_->parameters(), torch::optim::AdamOptions(1e-3));
    images_    = torch::rand({batch, 1, 28, 28});  // (B, C, H, W): faster here than channels last
    labels_    = torch::randint(10, {batch}, torch::kLong);
  }

  /// One step; returns the mean loss before it.
  double step() {
    if (mode_ == Mode::as_written) optimizer_->zero_grad();
    else
      for (auto& variable : network_->parameters()) variable.mutable_grad().reset();
    auto const loss = torch::nn::functional::cross_entropy(network_->forward(images_), labels_);
    loss.backward();
    optimizer_->step();
    return loss.template item<double>();
  }

  /// Returns the loss before the last of the steps.
  double run(int steps) {
    auto loss = 0.0;
    for (int i = 0; i < steps; ++i) loss = step();
    return loss;
  }

 private:
  struct Network : torch::nn::Module {
    explicit Network(Mode m) : mode{m} {
      register_module("conv2d", conv2d);
      register_module("dense", dense);
      register_module("dense_1", dense_1);
    }

    torch::Tensor forward(torch::Tensor x) {
      x = torch::max_pool2d(relu(conv2d(x)), 2);  // (B, 1, 28, 28) -> (B, 32, 13, 13)
      return dense_1(relu(dense(x.flatten(1))));  // (B, 5408) -> (B, 10)
    }
    torch::Tensor relu(torch::Tensor x) { return mode == Mode::tuned ? torch::relu_(x) : torch::relu(x); }

    Mode mode;
    torch::nn::Conv2d conv2d{torch::nn::Conv2dOptions(1, 32, 3)};
    torch::nn::Linear dense{32 * 13 * 13, 64}, dense_1{64, 10};
  };

  Mode mode_;
  std::shared_ptr<Network> network_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  torch::Tensor images_, labels_;
};

}  // namespace bench

#endif
