// SPDX-License-Identifier: Apache-2.0
//
// Losses and metrics against Keras' numbers. README.md beside this file has the tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace losses_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 9, width = 5;

SafetensorsFile const& expected() {
  static auto const file = SafetensorsFile::read("test/golden/losses.safetensors");
  return file;
}

std::vector<float> around_zero(std::uint32_t salt, float scale) {
  return golden::initial({"", rows * width, salt, scale});
}
auto const outputs = around_zero(0x2545F491, 8), numbers = around_zero(0x7F4A7C15, 4);

std::vector<float> bits() {
  auto all = std::vector<float>(rows * width);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i % 3 == 0 ? 1.0F : 0.0F;
  return all;
}
std::vector<float> shares() {
  auto all = std::vector<float>(rows * width);
  for (std::uint32_t i = 0; i < all.size(); ++i)
    all[i / width * width + (i + i / width) % width] = golden::value(i, 0x4F6CDD1D) + 0.125F;
  for (std::size_t r = 0; r < rows; ++r) {
    auto const row = Span<float>{all}.subspan(r * width, width);
    auto sum       = 0.0F;
    for (auto const x : row) sum += x;
    for (auto& x : row) x /= sum;
  }
  return all;
}
std::vector<float> signs() {
  auto all = bits();
  for (auto& x : all) x = 2 * x - 1;
  return all;
}
std::vector<float> shares_of_the_row_before() {
  auto all = shares();
  std::rotate(all.begin(), all.end() - width, all.end());
  return all;
}
std::vector<int> labels() {
  auto all = std::vector<int>(rows);
  for (std::size_t r = 0; r < rows; ++r) all[r] = static_cast<int>(r * 7 % width);
  return all;
}
std::vector<float> one_hot() {
  auto all = std::vector<float>(rows * width);
  for (std::size_t r = 0; r < rows; ++r) all[r * width + static_cast<std::size_t>(labels()[r])] = 1;
  return all;
}

template <class L>
void check(std::string const& name, L const& loss, std::vector<float> const& y,
           std::vector<typename L::target> const& wanted, double allowed = 2e-6) {
  INFO(name);
  auto d         = std::vector<float>(y.size(), 7.0F);  // all of it must be written
  auto const sum = loss::sum_of<Cpu>(loss, rows, width, y.data(), wanted.data(), d.data());
  CHECK(std::abs(sum - expected().floats(name + "/loss")[0]) < 10 * allowed);
  auto const gradient = expected().floats(name + "/gradient");
  for (std::size_t i = 0; i < d.size(); ++i) CHECK(std::abs(d[i] - gradient[i]) < allowed);
}

}  // namespace

TEST_CASE("losses and their gradients are Keras'", "[golden][loss]") {
  check("binary", loss::BinaryCrossEntropy{}, outputs, bits());
  check("binary_smoothed", loss::BinaryCrossEntropy{.label_smoothing = 0.25F}, outputs, bits());
  check("binary_shares", loss::BinaryCrossEntropyOfProbabilities{}, shares(), bits());
  check("binary_shares_smoothed", loss::BinaryCrossEntropyOfProbabilities{.label_smoothing = 0.25F}, shares(), bits());
  check("absolute", loss::MeanAbsoluteError{}, outputs, numbers);
  check("huber", loss::Huber{.delta = 0.75F}, outputs, numbers);
  check("log_cosh", loss::LogCosh{}, outputs, numbers);
  check("poisson", loss::Poisson{}, shares(), bits());
  check("hinge", loss::Hinge{}, outputs, bits());
  check("hinge_of_signs", loss::Hinge{}, outputs, signs());
  check("squared_hinge", loss::SquaredHinge{}, outputs, bits());
  check("divergence", loss::KLDivergence{}, shares(), shares_of_the_row_before(), 6e-6);
  check("cosine", loss::CosineSimilarity{}, outputs, numbers);
  check("focal", loss::BinaryFocalCrossEntropy{}, outputs, bits());
  check("focal_balanced",
        loss::BinaryFocalCrossEntropy{
            .apply_class_balancing = true, .alpha = 0.75F, .gamma = 1.5F, .label_smoothing = 0.25F},
        outputs, bits());
  check("smoothed", loss::CrossEntropy{.label_smoothing = 0.25F}, outputs, one_hot());
  check("smoothed", loss::SparseCrossEntropy{.label_smoothing = 0.25F}, outputs, labels());
  check("smoothed_shares", loss::CrossEntropy{.label_smoothing = 0.25F}, outputs, shares());
  check("weighted", loss::Weighted{loss::SparseCrossEntropy{}, {1, 0.5F, 2, 0, 4}}, outputs, labels());
  check("weighted", loss::Weighted{loss::CrossEntropy{}, {1, 0.5F, 2, 0, 4}}, outputs, one_hot());
}

TEST_CASE("smoothed losses on probabilities are Keras'", "[golden][loss]") {
  auto const name      = std::string{"smoothed_probabilities"};
  auto const y         = shares();
  auto const check_sum = [&](float sum) { CHECK(std::abs(sum - expected().floats(name + "/loss")[0]) < 2e-5); };
  auto const gradient  = expected().floats(name + "/gradient");
  auto const check_row = [&](std::vector<float> const& d) {  // Keras' divides a row by its sum: minus the mean
    for (std::size_t r = 0; r < rows; ++r) {
      auto mean = 0.0F;
      for (std::size_t c = 0; c < width; ++c) mean += d[r * width + c] * y[r * width + c];
      for (std::size_t c = 0; c < width; ++c) CHECK(std::abs(d[r * width + c] - mean - gradient[r * width + c]) < 1e-5);
    }
  };
  auto d            = std::vector<float>(y.size(), 7.0F);
  auto const wanted = one_hot();
  auto const ids    = labels();
  check_sum(loss::sum_of<Cpu>(loss::CrossEntropyOfProbabilities{.label_smoothing = 0.25F}, rows, width, y.data(),
                              wanted.data(), d.data()));
  check_row(d);
  check_sum(loss::sum_of<Cpu>(loss::SparseCrossEntropyOfProbabilities{.label_smoothing = 0.25F}, rows, width, y.data(),
                              ids.data(), d.data()));
  check_row(d);
}

TEST_CASE("metrics are Keras'", "[golden][metric]") {
  auto const mean_of = [](auto const& metric, auto const& wanted) {
    return metric::sum_of(metric, rows, width, outputs.data(), wanted.data()) / static_cast<float>(rows);
  };
  auto const is = [](float mean, std::string const& name) {
    INFO(name);
    CHECK(std::abs(mean - expected().floats("metric/" + name)[0]) < 1e-6);
  };
  is(mean_of(metric::BinaryAccuracy{}, bits()), "binary_accuracy");
  is(mean_of(metric::MeanAbsoluteError{}, numbers), "mean_absolute_error");
  is(mean_of(metric::TopKAccuracy<2>{}, labels()), "top_2_accuracy");
  is(mean_of(metric::TopKAccuracy<2>{}, shares()), "top_2_accuracy_of_shares");
  static_assert(metric::TopKAccuracy<2>::name == "top_2_accuracy");
  static_assert(metric::TopKAccuracy<10>::name == "top_10_accuracy");
}

}  // namespace losses_test
