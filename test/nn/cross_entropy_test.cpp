// SPDX-License-Identifier: Apache-2.0
//
// Losses and their gradients against their formulas, computed in double.
#include "test/nn/differences.hpp"
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace chorale;

namespace {

/// Logits between -4 and 4, and one of 100: exp(100) does not fit into a float.
std::vector<float> some_logits(std::size_t n) {
  auto logits = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) logits[i] = Random{5, 0}.uniform(i, -4, 4);
  logits[n / 2] = 100.0F;
  return logits;
}

/// Rows of positive numbers, each of which sums to 1.
std::vector<float> some_targets(std::size_t rows, std::size_t classes) {
  auto targets = std::vector<float>(rows * classes);
  for (std::size_t r = 0; r < rows; ++r) {
    auto const row = Span<float>{targets}.subspan(r * classes, classes);
    auto total     = 0.0F;
    for (std::size_t c = 0; c < classes; ++c) total += row[c] = Random{5, 1}.uniform(r * classes + c, 0.1F, 1);
    for (auto& target : row) target /= total;
  }
  return targets;
}

struct Expected {
  double loss = 0;
  std::vector<double> gradient{};
};

/// -sum(target · log softmax(logits)), and softmax(logits) - target, in double.
Expected cross_entropy(std::size_t rows, std::size_t classes, std::vector<float> const& logits,
                       std::vector<float> const& targets) {
  auto expected = Expected{};
  for (std::size_t r = 0; r < rows; ++r) {
    auto const* row    = logits.data() + r * classes;
    auto const largest = static_cast<double>(*std::max_element(row, row + classes));
    auto total         = 0.0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(row[c]) - largest);
    for (std::size_t c = 0; c < classes; ++c) {
      auto const target = static_cast<double>(targets[r * classes + c]);
      auto const log_of = static_cast<double>(row[c]) - largest - std::log(total);
      expected.loss -= target * log_of;
      expected.gradient.push_back(std::exp(log_of) - target);
    }
  }
  return expected;
}

struct Logits : nn::Sequential<nn::Input<6>, nn::Dense<7>, nn::Tanh, nn::Dense<4>> {};

}  // namespace

TEST_CASE("CrossEntropy and its gradient follow the formula", "[nn][loss]") {
  constexpr std::size_t rows = 9, classes = 7;
  auto const logits   = some_logits(rows * classes);
  auto const targets  = some_targets(rows, classes);
  auto const expected = cross_entropy(rows, classes, logits, targets);
  auto gradient       = std::vector<float>(logits.size());
  auto const loss = loss::CrossEntropy{}.compute<Cpu>(rows, classes, logits.data(), targets.data(), gradient.data());
  CHECK(loss == Approx(expected.loss).epsilon(1e-6));
  for (std::size_t i = 0; i < gradient.size(); ++i) CHECK(gradient[i] == Approx(expected.gradient[i]).margin(1e-6));
}

TEST_CASE("CrossEntropy of one-hot targets is SparseCrossEntropy of the labels", "[nn][loss]") {
  constexpr std::size_t rows = 8, classes = 5;
  auto const logits = some_logits(rows * classes);
  auto labels       = std::vector<int>(rows);
  auto one_hot      = std::vector<float>(rows * classes);
  for (std::size_t r = 0; r < rows; ++r) {
    labels[r]                                                  = static_cast<int>(r * 3 % classes);
    one_hot[r * classes + static_cast<std::size_t>(labels[r])] = 1;
  }
  auto dense = std::vector<float>(logits.size()), sparse = dense;
  auto const loss = loss::CrossEntropy{}.compute<Cpu>(rows, classes, logits.data(), one_hot.data(), dense.data());
  auto const same = loss::SparseCrossEntropy{}.compute<Cpu>(rows, classes, logits.data(), labels.data(), sparse.data());
  CHECK(loss == Approx(same).epsilon(1e-6));
  for (std::size_t i = 0; i < dense.size(); ++i) CHECK(dense[i] == Approx(sparse[i]).margin(1e-6));
}

TEST_CASE("a network learns by CrossEntropy what it learns by SparseCrossEntropy, on two replicas", "[nn][loss]") {
  constexpr std::size_t rows = 48;
  auto const sparse          = tiny::batch<int>(rows, 6, 1);  // labels 0 and 1 in turn
  auto dense                 = tiny::OwnedBatch<float>{sparse.x, std::vector<float>(rows * 4), rows, 6, 4};
  for (std::size_t r = 0; r < rows; ++r) dense.y[r * 4 + static_cast<std::size_t>(sparse.y[r])] = 1;
  auto const learn = []<class Y>(tiny::OwnedBatch<Y> const& data, auto loss) {
    auto trainer =
        Trainer{nn::compile<Logits>(loss, optim::SGD{.learning_rate = 0.5F}), MirroredStrategy{Cpu::logical(2)}};
    auto const batches = tiny::Batches<Y>{data, {17, 16, 15}};
    auto const history = trainer.fit(batches, {.epochs = 4, .show = Show::nothing});
    CHECK(history.back().scores.loss() < history.front().scores.loss());
    auto const body = trainer.copies()[0].net.variables().body();
    return std::vector<float>(body.begin(), body.end());
  };
  auto const by_targets = learn(dense, loss::CrossEntropy{});
  auto const by_labels  = learn(sparse, loss::SparseCrossEntropy{});
  REQUIRE(by_targets.size() == by_labels.size());
  for (std::size_t i = 0; i < by_labels.size(); ++i) CHECK(by_targets[i] == Approx(by_labels[i]).margin(1e-5));
}
