// SPDX-License-Identifier: Apache-2.0
//
// Layers around which their input goes: their sums and gradients, alone, nested, and with shortcuts.
#include "test/nn/differences.hpp"
#include "test/support/tiny.hpp"

#include <chorale/nn/networks/resnet.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::nn;
using test::check_gradients;

namespace {

struct BranchedRows : Sequential<Input<4>, Dense<5>, Residual<Dense<6>, Tanh, Dense<5>>, Tanh, Dense<3>> {};
struct BranchedFirst : Sequential<Input<4>, Residual<Dense<4>, Sigmoid>, Dense<3>> {};
struct BranchedNested
    : Sequential<Input<4>, Dense<5>, Residual<Dense<5>, Residual<Tanh, Dense<5>, Tanh>, Dense<5>>, Dense<3>> {};
struct BranchedBare : Sequential<Input<4>, Dense<5>, Residual<Residual<Tanh>>, Residual<Dropout<30>>, Dense<3>> {};
struct BranchedWider : Sequential<Input<4>, Residual<Dense<5>, Tanh, Shortcut<Dense<5>>>,
                                  Residual<Tanh, Dense<3>, Shortcut<Sigmoid, Dense<3>, Tanh>>> {};
struct BranchedImages : Sequential<Input<6, 6, 2>, Conv2D<3, 3, Same>, Residual<Tanh, Conv2D<3, 3, Pad<1>, NoBias>>,
                                   Residual<Conv2D<4, 1, NoBias>, Tanh, Conv2D<5, 3, Stride<2>, Pad<1>>,
                                            Shortcut<AveragePool2D<2>, Conv2D<5, 1, NoBias>>>,
                                   Flatten, Dense<3>> {};
struct BranchedNormed : Sequential<Input<5, 5, 1>, Block<Conv2D<4, 3, NoBias>, BatchNorm<>, Tanh>,
                                   Repeat<2, Residual<Conv2D<4, 3, Pad<1>, NoBias>, BatchNorm<>>, Tanh>,
                                   Residual<MaxPool2D<3, Stride<1>, Pad<1>>>, Flatten, Dense<3>> {};

struct Straight : Sequential<Input<4>, Dense<5>, Dense<6>, Tanh, Dense<5>, Dense<3>> {};
struct Around : Sequential<Input<4>, Dense<5>, Residual<Dense<6>, Tanh, Dense<5>>, Dense<3>> {};

}  // namespace

TEMPLATE_TEST_CASE("gradients through branches agree with central differences", "[nn]", BranchedRows, BranchedFirst,
                   BranchedNested, BranchedBare, BranchedWider, BranchedImages, BranchedNormed) {
  check_gradients<TestType>();
}

TEST_CASE("a residual adds its input to what its layers give", "[nn]") {
  auto const batch = tiny::batch<float>(5, 4, 3);
  auto const make  = [](auto model) { return model.instantiate(Cpu{}, 3); };
  auto plain       = make(compile<Straight>(loss::MeanSquaredError{}, optim::SGD{}));
  auto around      = make(compile<Around>(loss::MeanSquaredError{}, optim::SGD{}));
  REQUIRE(plain.net.variables().size() == around.net.variables().size());
  for (std::size_t v = 0; v < plain.net.variables().size(); ++v) {  // one layout: names and order are the same
    REQUIRE(plain.net.variables()[v].name == around.net.variables()[v].name);
    std::ranges::copy(plain.net.variables()[v].value, around.net.variables()[v].value.begin());
  }
  // y = ((h + f(h)) W + b) = (f(h) W + b) + h W, where h is what the first layer gives.
  auto const without = plain.predict(batch.view());
  auto const with    = around.predict(batch.view());
  auto const w0 = plain.net.variables()[0].value, b0 = plain.net.variables()[1].value,
             w3 = plain.net.variables()[6].value;
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t out = 0; out < 3; ++out) {
      auto sum = static_cast<double>(without[row * 3 + out]);
      for (std::size_t k = 0; k < 5; ++k) {
        auto h = static_cast<double>(b0[k]);
        for (std::size_t i = 0; i < 4; ++i) h += static_cast<double>(batch.x[row * 4 + i] * w0[i * 5 + k]);
        sum += h * static_cast<double>(w3[k * 3 + out]);
      }
      CHECK(with[row * 3 + out] == Approx(sum).epsilon(1e-5));
    }
}

TEST_CASE("blocks and repetitions are the layers that they stand for", "[nn][plan]") {
  struct Written : Sequential<Input<4>, Dense<5>, Tanh, Dense<5>, Tanh, Dense<5>, Tanh, Dense<3>> {};
  struct Repeated
      : Sequential<Input<4>, Repeat<2, Dense<5>, Tanh>, Block<Block<Dense<5>>, Tanh>, Repeat<0, ReLU>, Dense<3>> {};
  STATIC_REQUIRE(std::is_same_v<Written::nodes, Repeated::nodes>);
  CHECK(Repeated::plan.hash == Written::plan.hash);
}

TEST_CASE("ResNet-50 has the numbers of its paper", "[nn][plan]") {
  STATIC_REQUIRE(resnet::ResNet20<>::plan.parameters == 272'474);  // 0.27 M in the paper
  constexpr auto const& plan = resnet::ResNet50<>::plan;
  STATIC_REQUIRE(plan.parameters == 25'557'032);           // torchvision.models.resnet50
  STATIC_REQUIRE(plan.products_per_row == 4'089'184'256);  // of 224 by 224 pixels
  STATIC_REQUIRE(plan.variables.size() == 53 + 53 * 4 + 2);
  auto moving = std::size_t{0};
  for (auto const& v : plan.variables) moving += v.spec.trained() ? 0 : v.size;
  CHECK(moving == 53'120);  // tf.keras.applications.ResNet50 too
}
