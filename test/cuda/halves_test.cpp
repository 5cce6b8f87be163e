// SPDX-License-Identifier: Apache-2.0
//
// Networks that round on a GPU, in their products alone or in all that lies between layers, against the CPU in float.
#include "test/cuda/device.hpp"
#include "test/cuda/nets.hpp"
#include "test/cuda/same.hpp"
#include "test/support/tiny.hpp"

#include <chorale/data/digits.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

using namespace chorale;
using test::gpu_or_skip;
using namespace test::nets;

namespace {

/// The length of what two gradients differ by, relative to the length of the one that is wanted.
inline double distance(Span<float const> got, Span<float const> want) {
  auto apart = 0.0, length = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    auto const there = static_cast<double>(want[i]), by = static_cast<double>(got[i]) - there;
    apart += by * by, length += there * there;
  }
  return std::isfinite(apart) ? std::sqrt(apart / length) : std::numeric_limits<double>::infinity();
}

/// Gradients on a GPU that rounds, as Rounded says, and those of the same network on the CPU in float.
struct Gradients {
  std::vector<float> got, want;
};
template <class Rounded, class Net, class Optimizer = optim::SGD>
Gradients gradients_of(Cuda const& gpu, BasicBatch<float, int> const& batch, Optimizer const& optimizer = {}) {
  auto const scope = Cuda::Scope{gpu};
  auto const learn = [&](auto model) {
    model.value_and_gradient(batch, 0, [](std::size_t) {}, Together{});
    auto g = std::vector<float>(model.gradients().values.begin(), model.gradients().values.end());
    for (auto const& variable : Net::plan.variables)  // moving statistics are not scaled
      for (std::size_t i = variable.offset; variable.spec.trained() && i < variable.end(); ++i)
        g[i] /= model.optimizer.loss_scale.value;
    return g;
  };
  auto const loss = loss::SparseCrossEntropy{};
  return {learn(nn::compile<Rounded>(loss, optimizer).instantiate(gpu, 3)),
          learn(nn::compile<Net>(loss, optim::SGD{}).instantiate(Cpu{}, 3))};
}

/// Of each variable, what they differ by is at most so much of the CPU's.
template <class Rounded, class Net, class Optimizer = optim::SGD>
void check_rounded(Cuda const& gpu, BasicBatch<float, int> const& batch, double most, Optimizer const& optimizer = {}) {
  auto const [got, want] = gradients_of<Rounded, Net>(gpu, batch, optimizer);
  for (auto const& variable : Net::plan.variables) {
    INFO(std::string_view{variable.name});
    CHECK(distance(Span<float const>{got}.subspan(variable.offset, variable.size),
                   Span<float const>{want}.subspan(variable.offset, variable.size)) < most);
  }
}

/// The same of a network that keeps halves: of bf16, and of fp16, which has an eighth of its rounding.
template <class Net> void check_halves(Cuda const& gpu, BasicBatch<float, int> const& batch, double most) {
  check_rounded<nn::WithPrecision<Net, nn::Precision<bf16>>, Net>(gpu, batch, most);
  check_rounded<nn::WithPrecision<Net, nn::Precision<fp16>>, Net>(gpu, batch, most / 4,
                                                                  optim::LossScaled{optim::SGD{}, 1'024});
}

/// Drawn digits, as the CNN is made for.
struct Digits {
  std::vector<float> x{};
  std::vector<int> y{};

  explicit Digits(std::size_t n) {
    auto pixels = std::array<std::uint8_t, data::digit_pixels>{};
    for (std::size_t i = 0; i < n; ++i) {
      y.push_back(data::draw_digit(1, i, pixels));
      for (auto const pixel : pixels) x.push_back(static_cast<float>(pixel) / 255.0F);
    }
  }
  BasicBatch<float, int> batch() const { return {.x = x, .y = y, .rows = y.size()}; }
};

}  // namespace

TEST_CASE("products that round on a GPU are the CPU's to two digits", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("products that round on a GPU are the CPU's to two digits");
  if (!gpu) return;
  auto const scaled = optim::LossScaled{optim::SGD{}, 1'024};
  auto const rows   = test::Rows<int>{Plain::input::size, 1};
  auto const images = test::Rows<int>{Even::input::size, 1};
  check_rounded<nn::WithProducts<Plain, Products::tf32>, Plain>(*gpu, rows.batch(), 2e-3);
  check_rounded<nn::WithProducts<Plain, Products::bf16>, Plain>(*gpu, rows.batch(), 2e-2);
  check_rounded<nn::WithProducts<Plain, Products::fp16>, Plain>(*gpu, rows.batch(), 2e-3, scaled);
  check_rounded<nn::WithProducts<Even, Products::tf32>, Even>(*gpu, images.batch(), 2e-3);
  check_rounded<nn::WithProducts<Even, Products::bf16>, Even>(*gpu, images.batch(), 2e-2);
  check_rounded<nn::WithProducts<Even, Products::fp16>, Even>(*gpu, images.batch(), 2e-3, scaled);
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

TEST_CASE("gradients through activations of halves on a GPU are the CPU's, as far as halves go", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("gradients through activations of halves on a GPU are the CPU's, as far as halves go");
  if (!gpu) return;
  auto const rows = test::Rows<int>{Plain::input::size, 1};
  check_halves<Plain>(*gpu, rows.batch(), 2e-2);
  check_halves<Curves>(*gpu, rows.batch(), 2e-2);
  // A unit near zero, or another pixel of a window, that is the larger one when it is rounded: torch.autocast of the
  // CNN is 2 to 7 hundredths off, of MNIST or noise.
  check_halves<Even>(*gpu, Digits{64}.batch(), 0.06);
  check_halves<Uneven>(*gpu, test::Rows<int>{Uneven::input::size, 1}.batch(), 0.2);
  check_halves<Pixelwise>(*gpu, test::Rows<int>{Pixelwise::input::size, 1}.batch(), 0.06);
  check_halves<Branched>(*gpu, test::Rows<int>{Branched::input::size, 1}.batch(), 0.2);
}

TEST_CASE("the gradient of a large batch in halves on a GPU is the CPU's to two hundredths", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("the gradient of a large batch in halves on a GPU is the CPU's to two hundredths");
  if (!gpu) return;
  using Halves           = nn::WithPrecision<Even, nn::Precision<bf16>>;
  auto const digits      = Digits{1'024};  // units near zero are as many either way
  auto const [got, want] = gradients_of<Halves, Even>(*gpu, digits.batch());
  auto const body        = [](std::vector<float> const& g) {
    auto const [begin, end] = Even::plan.body();
    return Span<float const>{g}.subspan(begin, end - begin);
  };
  CHECK(distance(body(got), body(want)) < 2e-2);
}

TEST_CASE("activations of halves are halves in memory", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("activations of halves are halves in memory");
  if (!gpu) return;
  struct Passes : nn::Sequential<nn::Input<64>, nn::Tanh> {};  // one rounding in, one out
  auto const scope = Cuda::Scope{*gpu};
  using Halves     = nn::WithPrecision<Passes, nn::Precision<bf16>>;
  auto const data  = test::Rows<float>{64, 64};
  auto copy        = nn::compile<Halves>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(*gpu, 3);
  auto const y     = copy.predict(data.batch());
  REQUIRE(y.size() == data.x.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    auto const wanted = std::tanh(static_cast<float>(bf16{data.x[i]}));
    CHECK(y[i] == static_cast<float>(bf16{y[i]}));
    CHECK(y[i] == Approx(wanted).epsilon(1.0 / 256));
  }
}
