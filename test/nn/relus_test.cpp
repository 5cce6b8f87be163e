// SPDX-License-Identifier: Apache-2.0
//
// A ReLU that the kernel before it applies, beside LeakyReLU<0>, the same function, which is computed by itself.
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/gaussian_noise.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/tensor/cpu/onednn.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace relus_test {

using namespace chorale;
using namespace chorale::nn;

namespace {

template <class F>
struct Normed : Sequential<Input<6, 6, 2>, Conv2D<19, 3>, BatchNorm<>, F, Conv2D<16, 2>, SyncBatchNorm<>, F, Flatten,
                           Dense<9>, BatchNorm<>, F, Dense<3>> {};
template <class F>
struct Summed : Sequential<Input<6, 6, 3>, Conv2D<16, 3>,
                           Residual<Conv2D<16, 3, Same>, BatchNorm<>, F, Conv2D<16, 3, Same>, BatchNorm<>>, F,
                           Residual<Conv2D<16, 3, Same>, Shortcut<Conv2D<16, 1>>>, F, Flatten, Dense<3>> {};
template <class F>  // others write between a kernel and its ReLU
struct Noisy : Sequential<Input<6, 6, 3>, Conv2D<16, 3>, BatchNorm<>, GaussianNoise<70>, F, Flatten, Dense<17>,
                          BatchNorm<>, Dropout<40>, F, Dense<3>> {};

struct Learned {
  std::vector<float> values, gradients, outputs;
  float loss;

  bool operator==(Learned const&) const = default;
};

/// What a network has after three steps, and evaluates then.
template <class Net> Learned learned() {
  auto const batch = tiny::batch<float>(5, Net::input::size, 3);
  auto const model = compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F});
  auto copy        = model.instantiate(Cpu::logical(1)[0], 3);
  auto made        = Learned{};
  for (int step = 0; step < 3; ++step) {
    made.loss = copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}, Together{}).value;
    made.gradients.assign(copy.gradients().values.begin(), copy.gradients().values.end());
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  }
  made.values.assign(copy.net.variables().values.begin(), copy.net.variables().values.end());
  auto const y = copy.predict(batch.view());
  made.outputs.assign(y.begin(), y.end());
  return made;
}

}  // namespace

TEST_CASE("a ReLU that a normalization or a sum applies is computed as by itself", "[nn][batch_norm]") {
  CHECK(learned<Normed<ReLU>>() == learned<Normed<LeakyReLU<0>>>());
  CHECK(learned<Summed<ReLU>>() == learned<Summed<LeakyReLU<0>>>());
}

TEST_CASE("a ReLU behind a layer that writes over its input stays where it is", "[nn][batch_norm]") {
  CHECK(learned<Noisy<ReLU>>() == learned<Noisy<LeakyReLU<0>>>());
}

TEST_CASE("a NaN goes through a ReLU that a normalization applies", "[nn][batch_norm]") {
  auto batch = tiny::batch<float>(5, Normed<ReLU>::input::size, 3);
  batch.x[7] = std::numeric_limits<float>::quiet_NaN();
  auto copy  = compile<Normed<ReLU>>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu::logical(1)[0], 3);
  CHECK(std::isnan(copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}, Together{}).value));
}

TEST_CASE("one kernel takes a ReLU, and none once another one writes there", "[nn]") {
  auto relus       = onednn::Relus{};
  auto y           = std::vector<float>(3);
  using Taken      = onednn::Relus::Taken;
  auto const first = relus.ask(y.data()), second = relus.ask(&y[1]);
  CHECK(relus.asked() == 2);
  CHECK_FALSE(relus.take(&y[2], Taken::both));
  CHECK(relus.take(y.data(), Taken::both));
  CHECK_FALSE(relus.take(y.data(), Taken::forward));
  CHECK(relus.taken(first) == Taken::both);
  relus.withdraw(&y[1], 2);
  CHECK_FALSE(relus.take(&y[1], Taken::forward));
  CHECK(relus.taken(second) == Taken::nothing);
  auto const third = relus.ask(&y[1]);  // behind the one that was withdrawn
  relus.withdraw(&y[1], third);
  CHECK(relus.take(&y[1], Taken::forward));
}

}  // namespace relus_test
