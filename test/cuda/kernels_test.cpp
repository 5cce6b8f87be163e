// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of Cuda against the one of Cpu: the same variables and the same batch on both, then losses, gradients
// and updates are compared. Skipped where there is no GPU.
#include "test/cuda/device.hpp"
#include "test/cuda/nets.hpp"
#include "test/cuda/same.hpp"
#include "test/support/tiny.hpp"

#include <chorale/nn/losses/loss.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <vector>

using namespace chorale;
using test::check_same, test::gpu_or_skip;
using namespace test::nets;

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

TEST_CASE("a convolution with its pool in one pass on a GPU is the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a convolution with its pool in one pass on a GPU is the CPU's");
  if (!gpu) return;
  check_same<OnePass>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
  check_same<OnePassBare>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
  check_same<TwoPasses>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
}

TEST_CASE("windows with uneven pads, strides and overlaps on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("windows with uneven pads, strides and overlaps on a GPU are the CPU's");
  if (!gpu) return;
  check_same<Uneven>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
}

TEST_CASE("convolutions of single pixels on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("convolutions of single pixels on a GPU are the CPU's");
  if (!gpu) return;
  check_same<Pixelwise>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
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
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F, .weight_decay = 0.1F});
  check_same<Plain>(
      *gpu, loss::SparseCrossEntropy{},
      optim::SGD{
          .learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.1F, .decay = optim::SGD::Decay::in_gradient});
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{}, optim::Adam{.epsilon = 1e-3F});
  check_same<Plain>(*gpu, loss::SparseCrossEntropy{}, optim::AdamW{.epsilon = 1e-3F});
}

TEST_CASE("losses of few rows and of many on a GPU are the CPU's", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("losses of few rows and of many on a GPU are the CPU's");
  if (!gpu) return;
  auto const scope     = Cuda::Scope{*gpu};
  constexpr auto width = std::size_t{10};
  for (std::size_t const rows : {300U, 1'024U, 1'025U, 3'000U}) {  // from 1025 on, sums are a launch of their own
    auto const n       = rows * width;
    auto const memory  = gpu->allocate((4 * n + 3 * rows) * sizeof(float));
    auto* const y      = reinterpret_cast<float*>(memory.data());
    auto* const labels = reinterpret_cast<int*>(y + 4 * n);
    auto const wanted = Span<float>{y + n, n}, got = Span<float>{y + 2 * n, n}, want = Span<float>{y + 3 * n, n};
    auto const to = SumOfRows{.of_row = y + 4 * n + rows, .sum = y + 4 * n + 2 * rows};
    for (std::size_t i = 0; i < n; ++i) y[i] = Random{9, 0}.uniform(i, -2, 2), wanted[i] = Random{9, 1}.uniform(i);
    for (std::size_t r = 0; r < rows; ++r) labels[r] = static_cast<int>(r * 7 % width);
    auto const check = [&](float loss) {
      gpu->synchronize();
      CHECK(*to.sum == Approx(loss).epsilon(1e-5));
      CHECK(test::apart(got, want) < 1e-5);
    };
    INFO(rows << " rows");
    Kernels<Cuda>::sparse_cross_entropy(rows, width, y, labels, got.data(), to);
    check(Kernels<Cpu>::sparse_cross_entropy(rows, width, y, labels, want.data()));
    Kernels<Cuda>::cross_entropy(rows, width, y, wanted.data(), got.data(), to);
    check(Kernels<Cpu>::cross_entropy(rows, width, y, wanted.data(), want.data()));
    Kernels<Cuda>::squared_error(rows, width, y, wanted.data(), got.data(), to);
    check(Kernels<Cpu>::squared_error(rows, width, y, wanted.data(), want.data()));
    Kernels<Cuda>::hits(rows, width, y, labels, to);
    gpu->synchronize();
    CHECK(*to.sum == metric::Accuracy{}.sum(rows, width, y, labels));
  }
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

  auto const place = gpu->allocate(sizeof(cuda::launch::FirstBad));
  auto& found      = *new (place.data()) cuda::launch::FirstBad{};
  auto const look  = [&](std::size_t begin) {
    cuda::expect(cuda::launch::find_bad(begin, n - begin, x.data() + begin, nullptr, &found, cuda::queue()),
                  "find_bad");
    gpu->synchronize();
    return found.gradient;
  };
  x[60'001] = -std::numeric_limits<float>::infinity();
  CHECK(look(60'002) == n - 1);  // from here on none lies for four at once
  CHECK(look(16) == 60'001);
  CHECK(look(60'002) == 60'001);  // the first stays

  auto* const labels = reinterpret_cast<int*>(x.data() + 6);
  labels[0] = 1, labels[1] = 0;
  std::copy_n(std::vector<float>{0, 3, 3, 5, 4, 5}.begin(), 6, x.begin());
  Kernels<Cuda>::hits(2, 3, x.data(), labels, {.of_row = x.data() + 8, .sum = x.data() + 10});
  gpu->synchronize();
  CHECK(x[10] == 2);  // of equals the first one counts
}
