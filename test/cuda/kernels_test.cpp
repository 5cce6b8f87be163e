// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of Cuda against the one of Cpu: the same variables and the same batch on both, then losses, gradients
// and updates are compared. Skipped where there is no GPU.
#include "test/cuda/device.hpp"
#include "test/cuda/same.hpp"
#include "test/support/tiny.hpp"

#include <chorale/nn/activation.hpp>
#include <chorale/nn/batch_norm.hpp>
#include <chorale/nn/conv2d.hpp>
#include <chorale/nn/dense.hpp>
#include <chorale/nn/dropout.hpp>
#include <chorale/nn/flatten.hpp>
#include <chorale/nn/loss.hpp>
#include <chorale/nn/pool2d.hpp>
#include <chorale/nn/residual.hpp>
#include <chorale/nn/sequential.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/ops_cuda.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

using namespace chorale;
using test::check_same, test::gpu_or_skip;

namespace {

struct Plain : nn::Sequential<nn::Input<20>, nn::Dense<16>, nn::ReLU, nn::Dense<33>, nn::Tanh, nn::Dense<3>> {};
struct Curves : nn::Sequential<nn::Input<20>, nn::GELU, nn::Dense<8>, nn::SiLU, nn::Dense<8>, nn::ELU, nn::Dense<8>,
                               nn::LeakyReLU<>, nn::Dense<8>, nn::Softplus, nn::Dense<8>, nn::Sigmoid, nn::Dropout<40>,
                               nn::Dense<3>, nn::Softmax> {};
struct Even : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                             nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};
struct Uneven : nn::Sequential<nn::Input<9, 7, 3>, nn::Conv2D<4, 3, nn::Same>, nn::ReLU,
                               nn::Conv2D<5, 2, nn::Same, nn::Stride<2>>, nn::ELU, nn::Conv2D<6, 4, nn::Same>,
                               nn::MaxPool2D<3, nn::Same, nn::Stride<2>>, nn::AveragePool2D<2, nn::Same, nn::Stride<1>>,
                               nn::Flatten, nn::Dense<3>> {};

struct Branched
    : nn::Sequential<nn::Input<9, 9, 3>, nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::BatchNorm<>, nn::ReLU,
                     nn::Residual<nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::BatchNorm<>, nn::ReLU,
                                  nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::BatchNorm<>>, nn::ReLU,
                     nn::Residual<nn::Conv2D<6, 3, nn::Stride<2>, nn::Pad<1>>, nn::Residual<nn::Tanh>,
                                  nn::Shortcut<nn::Conv2D<6, 1, nn::Stride<2>, nn::NoBias>, nn::BatchNorm<>>>, nn::ReLU,
                     nn::MaxPool2D<3, nn::Stride<2>, nn::Pad<1>>, nn::Flatten, nn::Residual<nn::Dense<54>>,
                     nn::Dense<3>> {};

/// Gradients on a GPU whose products round their factors, against those of the CPU in float.
template <class Net, Products P, class Optimizer = optim::SGD>
void check_rounded(Cuda const& gpu, double most, Optimizer const& optimizer = {}) {
  auto const scope  = Cuda::Scope{gpu};
  auto const learn  = [](auto model) {
    auto const data = test::Rows<int>{Net::input::size, 1};
    model.value_and_gradient(data.batch(), 0, [](std::size_t) {}, Together{});
    auto g = std::vector<float>(model.gradients().values.begin(), model.gradients().values.end());
    for (auto& x : g) x /= model.optimizer.loss_scale.value;
    return g;
  };
  auto const loss = loss::SparseCrossEntropy{};
  auto const got  = learn(nn::compile<nn::WithProducts<Net, P>>(loss, optimizer).instantiate(gpu, 3));
  auto const want = learn(nn::compile<Net>(loss, optim::SGD{}).instantiate(Cpu{}, 3));
  for (auto const& variable : Net::plan.variables) {
    INFO(std::string_view{variable.name});
    CHECK(test::apart(Span<float const>{got}.subspan(variable.offset, variable.size),
                      Span<float const>{want}.subspan(variable.offset, variable.size)) < most);
  }
}

}  // namespace

TEST_CASE("products that round on a GPU are the CPU's to two digits", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("products that round on a GPU are the CPU's to two digits");
  if (!gpu) return;
  check_rounded<Plain, Products::tf32>(*gpu, 2e-3);
  check_rounded<Plain, Products::bf16>(*gpu, 2e-2);
  check_rounded<Even, Products::tf32>(*gpu, 2e-3);
  check_rounded<Even, Products::bf16>(*gpu, 2e-2);
  check_rounded<Plain, Products::fp16>(*gpu, 2e-3, optim::LossScaled{optim::SGD{}, 1'024});
  check_rounded<Even, Products::fp16>(*gpu, 2e-3, optim::LossScaled{optim::SGD{}, 1'024});
}

TEST_CASE("gradients that fp16 would round to zero stay, where the loss is scaled", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("gradients that fp16 would round to zero stay, where the loss is scaled");
  if (!gpu) return;
  struct One : nn::Sequential<nn::Input<16>, nn::Dense<8>> {};
  auto const scope = Cuda::Scope{*gpu};
  auto const loss  = loss::MeanSquaredError{};
  using Halves     = nn::WithProducts<One, Products::fp16>;
  auto ours        = nn::compile<Halves>(loss, optim::LossScaled{optim::SGD{}}).instantiate(*gpu, 3);
  auto theirs      = nn::compile<One>(loss, optim::SGD{}).instantiate(Cpu{}, 3);
  auto data        = tiny::batch<float>(16, 16, 8);
  for (auto& y : data.y) y *= 3e-8F;
  auto const learn = [&](auto& model) {
    std::ranges::fill(model.net.variables().values, 0.0F);
    model.value_and_gradient(data.view(), 0, [](std::size_t) {}, Together{});
    model.optimizer.apply(model.net.variables(), model.gradients());
    return model.net.variables()[0].value;
  };
  CHECK(test::apart(learn(ours), learn(theirs), 1e-30) < 2e-3);
}

TEST_CASE("products on a GPU are the CPU's, with bias, ReLU and gradients", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("products on a GPU are the CPU's, with bias, ReLU and gradients");
  if (!gpu) return;
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
  check_same<Plain>(*gpu, loss::CrossEntropy{}, optim::SGD{.learning_rate = 0.1F, .global_clipnorm = 0.01F});
}

TEST_CASE("activations, dropout and softmax on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("activations, dropout and softmax on a GPU are the CPU's");
  if (!gpu) return;
  check_same<Curves>(*gpu, loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F, .momentum = 0.9F});
}

TEST_CASE("the CNN's gradients on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("the CNN's gradients on a GPU are the CPU's");
  if (!gpu) return;
  check_same<Even>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
}

TEST_CASE("windows with uneven pads, strides and overlaps on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("windows with uneven pads, strides and overlaps on a GPU are the CPU's");
  if (!gpu) return;
  check_same<Uneven>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
}

TEST_CASE("residuals with and without shortcuts on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("residuals with and without shortcuts on a GPU are the CPU's");
  if (!gpu) return;
  check_same<Branched>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
}

TEST_CASE("update rules on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("update rules on a GPU are the CPU's");
  if (!gpu) return;
  using Momentum = optim::SGD::Momentum;
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{},
                    optim::SGD{.learning_rate = 0.1F, .momentum = 0.9F, .kind = Momentum::nesterov});
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{}, optim::Adam{.epsilon = 1e-3F});
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{}, optim::AdamW{.epsilon = 1e-3F});
}

TEST_CASE("checks over flat memory on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("checks over flat memory on a GPU are the CPU's");
  if (!gpu) return;
  auto const scope  = Cuda::Scope{*gpu};
  auto const n      = std::size_t{100'003};
  auto const memory = gpu->allocate(n * sizeof(float));
  auto const x      = Span<float>{reinterpret_cast<float*>(memory.data()), n};
  for (std::size_t i = 0; i < n; ++i) x[i] = Random{9, 0}.uniform(i, -2, 2);
  CHECK(Kernels<Cuda>::finite(x));
  CHECK(Kernels<Cuda>::squared_norm(x) == Approx(Kernels<Cpu>::squared_norm(x)).epsilon(1e-12));
  CHECK(Kernels<Cuda>::squared_norm(x) == Kernels<Cuda>::squared_norm(x));
  x[n - 1] = std::numeric_limits<float>::infinity();
  CHECK_FALSE(Kernels<Cuda>::finite(x));
  x[n - 1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(Kernels<Cuda>::finite(x));
  auto* const labels = reinterpret_cast<int*>(x.data() + 6);
  labels[0] = 1, labels[1] = 0;
  std::copy_n(std::vector<float>{0, 3, 3, 5, 4, 5}.begin(), 6, x.begin());
  Kernels<Cuda>::hits(2, 3, x.data(), labels, {.of_row = x.data() + 8, .sum = x.data() + 10});
  gpu->synchronize();
  CHECK(x[10] == 2);                                                       // of equals the first one counts
}
