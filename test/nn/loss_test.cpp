// SPDX-License-Identifier: Apache-2.0
//
// Losses on probabilities: their gradients, and that they learn what the losses on logits learn.
#include "test/nn/differences.hpp"
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace loss_test {

using namespace chorale;
using test::check_gradients;

namespace {

struct Logits : nn::Sequential<nn::Input<4>, nn::Dense<5>, nn::Tanh, nn::Dense<3>> {};
struct Probabilities : nn::Sequential<nn::Input<4>, nn::Dense<5>, nn::Tanh, nn::Dense<3>, nn::Softmax> {};
struct Flattened : nn::Sequential<nn::Input<4>, nn::Dense<3>, nn::Softmax, nn::Flatten> {};

/// Rows of positive numbers that add up to 1.
std::vector<float> distributions(std::size_t rows, std::size_t classes, Seed seed) {
  auto p = std::vector<float>(rows * classes);
  for (std::size_t r = 0; r < rows; ++r) {
    auto sum = 0.0F;
    for (std::size_t c = 0; c < classes; ++c) sum += p[r * classes + c] = Random{seed, r}.uniform(c, 0.1F, 1);
    for (std::size_t c = 0; c < classes; ++c) p[r * classes + c] /= sum;
  }
  return p;
}

/// What compute() puts into the gradient, against central differences of what it returns.
template <class Loss> void check_differences(Loss const& loss, std::vector<typename Loss::target> const& targets) {
  constexpr auto rows = std::size_t{6}, classes = std::size_t{3};
  auto p        = distributions(rows, classes, 5);
  auto gradient = std::vector<float>(p.size(), 7.0F), unused = gradient;  // all of it must be written
  loss.template compute<Cpu>(rows, classes, p.data(), targets.data(), gradient.data());
  for (std::size_t i = 0; i < p.size(); ++i) {
    constexpr auto h = 1e-3F;
    auto const keep  = p[i];
    auto const at    = [&](float x) {
      p[i] = x;
      return loss.template compute<Cpu>(rows, classes, p.data(), targets.data(), unused.data());
    };
    auto const slope = (at(keep + h) - at(keep - h)) / (2 * h);
    p[i]             = keep;
    INFO("probability " << i << " is " << keep);
    CHECK(gradient[i] == Approx(slope).epsilon(0.01).margin(2e-3));
  }
}

/// Values of all variables after some updates, and the losses on the way.
template <class Net, class Loss> std::vector<float> learned(Loss loss) {
  auto batch = tiny::batch<typename Loss::target>(12, 4, Loss::targets(3));
  if constexpr (std::is_same_v<typename Loss::target, float>) batch.y = distributions(12, 3, 9);
  auto copy = nn::compile<Net>(loss, optim::SGD{.learning_rate = 0.5F}).instantiate(Cpu{}, 3);
  auto all  = std::vector<float>{};
  for (int step = 0; step < 20; ++step) {
    all.push_back(copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}).mean());
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  }
  auto const body = copy.net.variables().body();
  all.insert(all.end(), body.begin(), body.end());
  return all;
}

void check_near(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  CHECK(a[19] < 0.97F * a[0]);  // it learns
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).epsilon(1e-4).margin(1e-5));
}

}  // namespace

TEST_CASE("gradients of losses on probabilities agree with central differences", "[nn][loss]") {
  check_differences(loss::SparseCrossEntropyOfProbabilities{}, {0, 1, 2, 2, 1, 0});
  check_differences(loss::CrossEntropyOfProbabilities{}, distributions(6, 3, 8));
  check_gradients<Probabilities, loss::SparseCrossEntropyOfProbabilities>();
  check_gradients<Probabilities, loss::CrossEntropyOfProbabilities>();
  check_gradients<Flattened, loss::SparseCrossEntropyOfProbabilities>();
}

TEST_CASE("softmax and a loss on probabilities learn what a loss on logits learns", "[nn][loss]") {
  check_near(learned<Probabilities>(loss::SparseCrossEntropyOfProbabilities{}),
             learned<Logits>(loss::SparseCrossEntropy{}));
  check_near(learned<Probabilities>(loss::CrossEntropyOfProbabilities{}), learned<Logits>(loss::CrossEntropy{}));
}

TEST_CASE("a probability of 0 has a finite loss and a finite gradient", "[nn][loss]") {
  auto const p     = std::array<float, 2>{0, 1};
  auto d           = std::array<float, 2>{};
  auto const wrong = 0, right = 1;
  CHECK(loss::SparseCrossEntropyOfProbabilities{}.compute<Cpu>(1, 2, p.data(), &wrong, d.data()) ==
        Approx(-std::log(1e-7)));
  CHECK(d == std::array<float, 2>{-1.0F / 1e-7F, 0});
  CHECK(loss::SparseCrossEntropyOfProbabilities{}.compute<Cpu>(1, 2, p.data(), &right, d.data()) == 0);
  CHECK(d == std::array<float, 2>{0, -1});
  auto const targets = std::array<float, 2>{0.5F, 0.5F};
  CHECK(loss::CrossEntropyOfProbabilities{}.compute<Cpu>(1, 2, p.data(), targets.data(), d.data()) ==
        Approx(-0.5 * std::log(1e-7)));
  CHECK(d == std::array<float, 2>{-0.5F / 1e-7F, -0.5F});
}

TEST_CASE("a loss on probabilities refuses a label out of range", "[nn][loss]") {
  auto batch = tiny::batch<int>(4, 4, 1);
  batch.y    = {0, 1, -1, 2};
  auto copy = nn::compile<Probabilities>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{}).instantiate(Cpu{}, 3);
  CHECK_THROWS_WITH(copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}),
                    Catch::Contains("row 2 of the batch has label -1, but the network has outputs for 0 to 2"));
}

}  // namespace loss_test
