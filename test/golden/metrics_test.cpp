// SPDX-License-Identifier: Apache-2.0
//
// Metrics with a state against Keras' numbers, after each batch. README.md beside this file says how they are made.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace metrics_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 50, width = 4;
constexpr std::array<std::size_t, 4> batches{16, 16, 16, 2};

SafetensorsFile const& expected() {
  static auto const file = SafetensorsFile::read("test/golden/metrics.safetensors");
  return file;
}

std::vector<float> values(std::uint32_t salt) {
  auto all = std::vector<float>(rows * width);
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = golden::value(i, salt);
  return all;
}
std::vector<float> of_squares(std::uint32_t salt, float less, float times) {
  auto all = std::vector<float>(rows * width);
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = golden::value(i * i, salt) * times - less;
  return all;
}
std::vector<float> around_zero(std::uint32_t salt, float scale) {
  return golden::initial({"", rows * width, salt, scale});
}
std::vector<float> less(std::vector<float> const& a, std::vector<float> const& b) {
  auto bits = std::vector<float>(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) bits[i] = a[i] < b[i] ? 1.0F : 0.0F;
  return bits;
}

auto const logits = around_zero(0x2545F491, 8), numbers = around_zero(0x7F4A7C15, 4);
auto const shares = values(0x4F6CDD1D);
auto const bits   = less(of_squares(0x7F4A7C15, 0, 1), shares);
auto const signs  = less(of_squares(0x7F4A7C15, 4, 8), logits);

std::vector<int> labels() {
  auto all = std::vector<int>(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    auto const row = logits.begin() + static_cast<std::ptrdiff_t>(r * width);
    auto const top = static_cast<int>(std::max_element(row, row + width) - row);
    all[r]         = r % 3 == 0 ? top : static_cast<int>(r * 7 % (width - 1));
  }
  return all;
}
std::vector<float> one_hot() {
  auto all = std::vector<float>(rows * width);
  for (std::size_t r = 0; r < rows; ++r) all[r * width + static_cast<std::size_t>(labels()[r])] = 1;
  return all;
}

template <class M, class T>
void check(std::string const& name, M const& metric, std::vector<float> const& y, std::vector<T> const& wanted,
           std::size_t element = 0, std::size_t elements = 1) {
  INFO(name);
  auto const results = expected().floats(name);
  REQUIRE(results.size() == batches.size() * elements);
  auto const each = wanted.size() / rows;
  auto counts     = metric::Counts<M>{};
  for (std::size_t b = 0, first = 0; b < batches.size(); first += batches[b++]) {
    counts.add(metric, batches[b], width, y.data() + first * width, wanted.data() + first * each);
    CHECK(std::abs(counts.result(metric) - static_cast<double>(results[b * elements + element])) < 1e-6);
  }
}

}  // namespace

TEST_CASE("metrics of outputs above a threshold are Keras'", "[golden][metric]") {
  check("precision", metric::Precision{.threshold = 0.75F}, shares, bits);
  check("recall", metric::Recall{.threshold = 0.75F}, shares, bits);
  check("f1", metric::F1{.threshold = 0.75F}, shares, bits);
  check("auc", metric::AUC<>{.logits = false}, shares, bits);
  check("auc_20", metric::AUC<20>{.logits = false}, shares, bits);
  check("auc_of_logits", metric::AUC<>{}, logits, signs);
  using metric::Curve;
  check("precision_recall_auc", metric::AUC<200, Curve::precision_recall>{.logits = false}, shares, bits);
  check("precision_recall_auc_20", metric::AUC<20, Curve::precision_recall>{.logits = false}, shares, bits);
}

TEST_CASE("metrics of classes are Keras'", "[golden][metric]") {
  check("class_1_precision", metric::PrecisionOf<1>{}, shares, one_hot());
  check("class_1_precision", metric::PrecisionOf<1>{}, shares, labels());
  check("class_1_recall", metric::RecallOf<1>{}, shares, one_hot());
  check("class_1_recall", metric::RecallOf<1>{}, shares, labels());
  check("f1_of_classes", metric::F1Of<0>{}, shares, one_hot(), 0, width);
  check("f1_of_classes", metric::F1Of<2>{}, shares, labels(), 2, width);
  check("accuracy", metric::ConfusionMatrix<width>{}, logits, labels());
  check("mean_iou", metric::MeanIoU<width>{}, logits, labels());
  check("mean_iou", metric::MeanIoU<width>{}, logits, one_hot());
}

TEST_CASE("functions of a mean are Keras'", "[golden][metric]") {
  check("perplexity", metric::Perplexity{}, logits, labels());
  check("perplexity", metric::Perplexity{}, logits, one_hot());
  check("root_mean_squared_error", metric::RootMeanSquaredError{}, logits, numbers);
}

}  // namespace metrics_test
