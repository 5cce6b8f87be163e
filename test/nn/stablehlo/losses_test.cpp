// SPDX-License-Identifier: Apache-2.0
//
// Losses in operations against those of Cpu: the numbers of each row, and the gradients.
#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/core/random.hpp>
#include <chorale/nn/losses/binary_losses.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/losses/weighted_loss.hpp>
#include <chorale/nn/lowering/gradient.hpp>
#include <chorale/nn/lowering/losses.hpp>
#include <chorale/tensor/cpu/kernels.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace hlo_losses {

using namespace chorale;
namespace hlo = nn::stablehlo;
using test::Interpreter;
using test::Numbers;

namespace {

/// A program's own loss, which is written in operations below.
struct Fourth {
  using target = float;

  float row(Span<float const> y, Span<float const> targets, Span<float> dy) const {
    auto sum = 0.0F;
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const d = y[i] - targets[i];
      sum += d * d * d * d;
      dy[i] = 4 * d * d * d;
    }
    return sum;
  }
};
struct Unwritten {
  using target = float;
};

}  // namespace
}  // namespace hlo_losses

template <> struct chorale::nn::stablehlo::LossLowering<hlo_losses::Fourth> {
  static Value rows(hlo_losses::Fourth const&, Value y, Value targets) {
    auto const d = y - targets;
    return sum_last(d * d * d * d);
  }
};

namespace hlo_losses {
namespace {

/// Compares a loss with that of Cpu: rows and gradients, of which each counts 1.5 times.
template <class L>
void check(L const& loss, std::size_t width, std::vector<float> const& y,
           std::vector<typename L::target> const& targets, double epsilon = 2e-6) {
  auto const each = loss::targets_of<L>(width), n = y.size() / width;
  auto const batch = static_cast<std::int64_t>(n);
  auto const dims  = [&](std::size_t of) { return hlo::Dims{batch, static_cast<std::int64_t>(of)}; };
  auto program     = hlo::Program{};
  auto const in    = program.parameter(hlo::Element::f32, dims(width));
  auto const wanted =
      program.parameter(std::is_same_v<typename L::target, int> ? hlo::Element::i32 : hlo::Element::f32, dims(each));
  auto const rows = hlo::LossLowering<L>::rows(loss, in, wanted);
  REQUIRE(rows.dims() == hlo::Dims{batch});
  auto const by = gradients(sum(rows * 1.5), {in})[0];
  auto const made =
      Interpreter{program, {{Numbers(y.begin(), y.end()), Numbers(targets.begin(), targets.end())}}, {rows, by}};
  auto d = std::vector<float>(width);
  for (std::size_t r = 0; r < n; ++r) {
    INFO("row " << r);
    auto const of_row = loss::sum_of<Cpu>(loss, 1, width, y.data() + r * width, targets.data() + r * each, d.data());
    CHECK(made(rows)[r] == Approx(of_row).epsilon(epsilon).margin(epsilon));
    for (std::size_t i = 0; i < width; ++i) {
      INFO("output " << y[r * width + i]);
      CHECK(made(by)[r * width + i] == Approx(1.5 * double{d[i]}).epsilon(epsilon).margin(epsilon));
    }
  }
}

std::vector<float> random(std::size_t n, float low, float high) {
  auto made = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) made[i] = Random{5, 3}.uniform(i, low, high);
  return made;
}

// Rows of 4: all alike, far apart, near, and at random.
std::vector<float> outputs() {
  auto made = std::vector<float>{0, 0, 0, 0, 60, -60, 30, 2, 1e-3F, -1e-3F, 1, 0.5F};
  for (auto const x : random(12, -2, 2)) made.push_back(x);
  return made;
}
std::vector<float> targets() {  // the first row has those of the outputs
  auto made = std::vector<float>{0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0};
  for (auto const x : random(12, 0, 1)) made.push_back(x);
  return made;
}
/// Rows that add up to 1; the first has zeros.
std::vector<float> probabilities(float shift) {
  auto made = std::vector<float>{0, 1, 0, 0};
  auto all  = random(20, 0.1F + shift, 1);
  for (std::size_t r = 0; r < 5; ++r)
    for (std::size_t i = 0; i < 4; ++i)
      made.push_back(all[4 * r + i] / (all[4 * r] + all[4 * r + 1] + all[4 * r + 2] + all[4 * r + 3]));
  return made;
}

}  // namespace

TEST_CASE("losses of classes in operations are those of Cpu", "[nn][stablehlo]") {
  auto const labels    = std::vector<int>{0, 1, 2, 3, 0, 2};
  auto const smoothing = GENERATE(0.0F, 0.1F);
  check(loss::SparseCrossEntropy{smoothing}, 4, outputs(), labels, 4e-6);
  check(loss::CrossEntropy{smoothing}, 4, outputs(), probabilities(0.2F), 4e-6);
  check(loss::SparseCrossEntropyOfProbabilities{smoothing}, 4, probabilities(0), labels, 4e-6);
  check(loss::CrossEntropyOfProbabilities{smoothing}, 4, probabilities(0), probabilities(0.2F), 4e-6);
  check(loss::KLDivergence{}, 4, probabilities(0), probabilities(0.2F), 4e-6);
  check(loss::KLDivergence{}, 4, {2, 1, 1e-9F, 0.5F}, {0.5F, 2, 0, 0.5F});
  // Targets that add up to nothing have the gradient of those of Cpu as well.
  check(loss::CrossEntropy{}, 4, {1, 2, 3, 4}, {0, 0, 0, 0});
}

TEST_CASE("losses of numbers in operations are those of Cpu", "[nn][stablehlo]") {
  check(loss::MeanSquaredError{}, 4, outputs(), targets());
  check(loss::MeanAbsoluteError{}, 4, outputs(), targets());
  check(loss::Huber{}, 4, outputs(), targets());
  check(loss::Huber{.delta = 0.25F}, 4, outputs(), targets());
  check(loss::LogCosh{}, 4, outputs(), targets());
  check(loss::Poisson{}, 4, random(24, 0.1F, 3), targets());
  check(loss::CosineSimilarity{}, 4, outputs(), targets());
  check(loss::Given{}, 4, outputs(), targets());
  CHECK_THROWS_WITH(check(loss::Huber{.delta = 0}, 4, outputs(), targets()), Catch::Contains("delta of loss::Huber"));
}

TEST_CASE("losses of two classes in operations are those of Cpu", "[nn][stablehlo]") {
  check(loss::Hinge{}, 4, outputs(), targets());
  check(loss::SquaredHinge{}, 4, outputs(), targets());
  auto const smoothing = GENERATE(0.0F, 0.1F);
  check(loss::BinaryCrossEntropy{smoothing}, 4, outputs(), targets());
  check(loss::BinaryCrossEntropyOfProbabilities{smoothing}, 4, probabilities(0), probabilities(0.2F), 4e-6);
  check(loss::BinaryFocalCrossEntropy{.label_smoothing = smoothing}, 4, outputs(), targets(), 1e-5);
  check(loss::BinaryFocalCrossEntropy{true, 0.3F, 0.5F, smoothing}, 4, outputs(), targets(), 1e-5);
  check(loss::BinaryFocalCrossEntropy{.gamma = 0}, 4, outputs(), targets());
  auto const negative = loss::BinaryFocalCrossEntropy{.gamma = -1};
  CHECK_THROWS_WITH(check(negative, 4, outputs(), targets()), Catch::Contains("gamma"));
  CHECK_THROWS_WITH(check(loss::BinaryCrossEntropy{2}, 4, outputs(), targets()), Catch::Contains("label_smoothing"));
}

TEST_CASE("rows of weighted losses in operations count by their class", "[nn][stablehlo]") {
  auto const of_class = std::vector<float>{1, 0, 20, 0.5F};
  check(loss::Weighted{loss::SparseCrossEntropy{}, of_class}, 4, outputs(), {0, 1, 2, 3, 0, 2}, 4e-6);
  check(loss::Weighted{loss::MeanSquaredError{}, of_class}, 4, outputs(), targets(), 4e-6);
  check(loss::Weighted{loss::BinaryCrossEntropy{}, {2, 3}}, 1, {1, 2, -1}, {0, 1, 0.5F});
  auto const short_of = loss::Weighted{loss::BinaryCrossEntropy{}, {2}};
  CHECK_THROWS_WITH(check(short_of, 1, {1}, {0}), Catch::Contains("has 1 weights"));
}

TEST_CASE("a program writes its own losses in operations", "[nn][stablehlo]") {
  static_assert(hlo::writes_loss<Fourth> && hlo::writes_loss<loss::Weighted<Fourth>> && !hlo::writes_loss<Unwritten>);
  check(Fourth{}, 4, random(24, -2, 2), targets(), 4e-6);
  check(loss::Weighted{Fourth{}, {2, 1, 1, 1}}, 4, random(24, -2, 2), targets(), 4e-6);
}

}  // namespace hlo_losses
