// SPDX-License-Identifier: Apache-2.0
//
// Losses and metrics that are functions of a row, label smoothing and class weights.
#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace row_loss_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t rows = 6, width = 4;

/// A loss of one function.
struct LogCosh {
  using target = float;
  float row(Span<float const> y, Span<float const> wanted, Span<float> dy) const {
    auto sum = 0.0F;
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const d = y[i] - wanted[i];
      sum += std::log(std::cosh(d));
      dy[i] = std::tanh(d);
    }
    return sum;
  }
};
/// A loss of a label, which adds to the gradient.
struct Hinge {
  using target = int;
  float margin = 1;
  void check(std::size_t n, std::size_t, int const* labels) const {
    for (std::size_t r = 0; r < n; ++r) CHORALE_EXPECTS(labels[r] >= 0, "a label is 0 or more");
  }
  float row(Span<float const> y, Span<int const> label, Span<float> dy) const {
    auto const at = static_cast<std::size_t>(label[0]);
    auto sum      = 0.0F;
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const over = margin + y[i] - y[at];
      if (i == at || over <= 0) continue;
      sum += over;
      dy[i] += 1;
      dy[at] -= 1;
    }
    return sum;
  }
};
/// Two targets for each row, whatever the outputs.
struct Between {
  using target = float;
  static constexpr std::size_t targets(std::size_t) { return 2; }
  float row(Span<float const> y, Span<float const> bounds, Span<float> dy) const {
    auto sum = 0.0F;
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const out = y[i] - std::clamp(y[i], bounds[0], bounds[1]);
      sum += out * out;
      dy[i] = 2 * out;
    }
    return sum;
  }
};
struct Largest {
  static constexpr std::string_view name = "largest";
  float row(Span<float const> y, Span<int const>) const { return *std::max_element(y.begin(), y.end()); }
};
struct Below {
  static constexpr std::string_view name = "below";
  float row(Span<float const> y, Span<float const> wanted) const { return y[0] < wanted[1] ? 1.0F : 0.0F; }
};

struct Number : Field<float, 1> {};
struct Wanted : Field<float, 1> {};
struct Weight : Field<float, 1> {};
struct Numbered : nn::Graph<Number> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto x) const { return nn::outputs<Wanted>(layer(x)); }
};
struct Pixels : Field<float, 8> {};
struct First : Field<float, 3> {};
struct Second : Field<float, 3> {};
/// Probabilities, and logits.
struct Scored : nn::Graph<Pixels> {
  nn::Dense<3> first, second;
  constexpr auto operator()(auto x) const {
    return nn::outputs<First, Second>(nn::reshape<3>(nn::sigmoid(first(x))), second(x));
  }
};

std::vector<float> some_outputs() {
  auto y = std::vector<float>(rows * width);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Random{5, 0}.uniform(i, -3, 3);
  return y;
}
template <class L> auto some_targets() {
  using T     = typename L::target;
  auto wanted = std::vector<T>(rows * loss::targets_of<L>(width));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if constexpr (std::is_same_v<T, int>) wanted[i] = static_cast<int>(i * 3 % width);
    else wanted[i] = static_cast<float>(i % width) / 4;
  return wanted;
}

template <class L>
void check_differences(L const& loss, std::vector<typename L::target> const& wanted,
                       std::vector<float> y = some_outputs()) {
  auto d = std::vector<float>(y.size(), 7.0F), unused = d;
  loss::sum_of<Cpu>(loss, rows, width, y.data(), wanted.data(), d.data());
  for (std::size_t i = 0; i < y.size(); ++i) {
    constexpr auto h = 4e-3F;
    auto const keep  = y[i];
    auto const at    = [&](float x) {
      y[i] = x;
      return loss::sum_of<Cpu>(loss, rows, width, y.data(), wanted.data(), unused.data());
    };
    auto const slope = (at(keep + h) - at(keep - h)) / (2 * h);
    y[i]             = keep;
    INFO("output " << i << " is " << keep);
    CHECK(d[i] == Approx(slope).epsilon(0.01).margin(3e-3));
  }
}
template <class L> void check_differences(L const& loss = {}) { check_differences(loss, some_targets<L>()); }

std::vector<float> distributions() {
  auto p = some_outputs();
  for (std::size_t r = 0; r < rows; ++r) {
    auto sum = 0.0F;
    for (std::size_t c = 0; c < width; ++c) sum += p[r * width + c] = std::exp(p[r * width + c] / 2);
    for (std::size_t c = 0; c < width; ++c) p[r * width + c] /= sum;
  }
  return p;
}

}  // namespace

TEST_CASE("gradients of losses by row agree with central differences", "[nn][loss]") {
  check_differences<LogCosh>();
  check_differences<Hinge>();
  check_differences<Between>();
  check_differences<loss::BinaryCrossEntropy>();
  check_differences(loss::BinaryCrossEntropy{.label_smoothing = 0.3F});
  check_differences(loss::BinaryCrossEntropyOfProbabilities{}, distributions(), distributions());
  check_differences(loss::BinaryCrossEntropyOfProbabilities{.label_smoothing = 0.3F}, distributions(), distributions());
  check_differences<loss::MeanAbsoluteError>();
  check_differences<loss::Huber>();
  check_differences(loss::Huber{.delta = 0.4F});
  check_differences<loss::LogCosh>();
  check_differences<loss::Hinge>();
  check_differences<loss::SquaredHinge>();
  check_differences<loss::CosineSimilarity>();
  check_differences<loss::BinaryFocalCrossEntropy>();
  check_differences(
      loss::BinaryFocalCrossEntropy{.apply_class_balancing = true, .gamma = 0.5F, .label_smoothing = 0.2F});
  check_differences(loss::BinaryFocalCrossEntropy{.gamma = 0});
  check_differences(loss::Poisson{}, some_targets<loss::Poisson>(), distributions());
  check_differences(loss::KLDivergence{}, some_targets<loss::KLDivergence>(), distributions());
  check_differences(loss::Weighted{loss::KLDivergence{}, {1, 3, 0, 0.5F}}, some_targets<loss::KLDivergence>(),
                    distributions());
}

TEST_CASE("losses of extreme outputs are finite, and so are their gradients", "[nn][loss]") {
  auto const y    = std::vector<float>{2e4F, -2e4F, 0, 1e-30F};
  auto const same = [&](auto const& loss, std::vector<float> const& wanted, float sum,
                        std::vector<float> const& slopes) {
    auto d = std::vector<float>(4);
    CHECK(loss.row(y, wanted, d) == Approx(sum));
    CHECK(d == slopes);
  };
  same(loss::LogCosh{}, {0, 0, 0, 0}, (4e4F - 2 * std::log(2.0F)) / 4, {0.25F, -0.25F, 0, 0.25e-30F});
  same(loss::BinaryFocalCrossEntropy{}, {1, 0, 1, 1}, std::log(2.0F) / 8,
       {0, 0, -(std::log(2.0F) + 0.5F) / 16, -(std::log(2.0F) + 0.5F) / 16});
  same(loss::BinaryFocalCrossEntropy{.gamma = 0.5F}, {0, 1, 0.5F, 0.5F}, 1e4F + std::log(2.0F) / std::sqrt(8.0F),
       {0.25F, -0.25F, 0, 0});
  same(loss::Hinge{}, {0, 1, 0, -1}, (4e4F + 4) / 4, {0.25F, -0.25F, 0.25F, 0.25F});
  auto d          = std::vector<float>(4);
  auto const tiny = std::vector<float>{1e-9F, 0, 0, 0}, one = std::vector<float>{1, 0, 0, 0};
  CHECK(loss::CosineSimilarity{}.row(tiny, one, d) == 0);  // no direction
  CHECK(loss::CosineSimilarity{}.row(one, tiny, d) == 0);
  CHECK(d == std::vector<float>(4));
  CHECK(loss::CosineSimilarity{}.row(one, one, d) == -1);
  auto const certain = std::vector<float>{1, 0, 0, 0};
  CHECK(loss::KLDivergence{}.row(certain, std::vector<float>{0, 1, 0, 0}, d) == Approx(std::log(1e7F)).epsilon(1e-4));
  CHECK(d[1] == -1e7F);  // wrong for certain: it still learns
}

TEST_CASE("gradients of smoothed and weighted losses agree with central differences", "[nn][loss]") {
  auto const labels = some_targets<loss::SparseCrossEntropy>();
  check_differences(loss::SparseCrossEntropy{.label_smoothing = 0.2F});
  check_differences(loss::CrossEntropy{.label_smoothing = 0.2F}, distributions());
  check_differences(loss::SparseCrossEntropyOfProbabilities{.label_smoothing = 0.2F}, labels, distributions());
  check_differences(loss::CrossEntropyOfProbabilities{.label_smoothing = 0.2F}, distributions(), distributions());
  check_differences(loss::Weighted{loss::SparseCrossEntropy{}, {1, 3, 0, 0.5F}}, labels);
  check_differences(loss::Weighted{loss::CrossEntropy{.label_smoothing = 0.1F}, {1, 3, 0, 0.5F}}, distributions());
  check_differences(loss::Weighted{Hinge{}, {1, 3, 0, 0.5F}}, labels);
}

TEST_CASE("a binary cross entropy of large logits is finite and exact", "[nn][loss]") {
  auto const y      = std::vector<float>{200, -200, 200, -200};
  auto const wanted = std::vector<float>{1, 0, 0, 1};
  auto d            = std::vector<float>(4);
  CHECK(loss::BinaryCrossEntropy{}.row(y, wanted, d) == 100);
  CHECK(d == std::vector<float>{0, 0, 0.25F, -0.25F});
}

TEST_CASE("a binary cross entropy of probabilities is finite, and its gradient does not vanish", "[nn][loss]") {
  auto const y      = std::vector<float>{1, 0, 0, 1};
  auto const wanted = std::vector<float>{1, 0, 1, 0};
  auto d            = std::vector<float>(4);
  auto const least  = 1.1920929e-7;  // 1 - 1e-7 is 1 - this
  CHECK(loss::BinaryCrossEntropyOfProbabilities{}.row(y, wanted, d) == Approx((std::log(1e7) - std::log(least)) / 4));
  CHECK(d[2] == Approx(-1e7 / 4));
  CHECK(d[3] == Approx(1 / least / 4));
}

TEST_CASE("options of metrics that do not fit how the network ends are one sentence", "[nn][metric]") {
  struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>> {};
  struct Shares : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Sigmoid> {};
  struct Classes : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax> {};
  auto const logits = [](auto metric) { return nn::compile<Net>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric); };
  auto const shares = [](auto metric) {
    return nn::compile<Shares>(loss::BinaryCrossEntropyOfProbabilities{}, optim::SGD{}, metric);
  };
  auto const has_threshold = Contains(
      "has the threshold 0, which is one of logits, but the output that it looks at "
      "ends with probabilities from 0 to 1");
  CHECK_THROWS_WITH(shares(metric::BinaryAccuracy{}),
                    Contains("metric::BinaryAccuracy{.threshold = 0.5F}") && has_threshold);
  CHECK_THROWS_WITH(shares(metric::Precision{}), Contains("metric::Precision") && has_threshold);
  CHECK_THROWS_WITH(shares(metric::Recall{}), Contains("metric::Recall") && has_threshold);
  CHECK_THROWS_WITH(shares(metric::F1{}), Contains("metric::F1") && has_threshold);
  CHECK_THROWS_WITH(nn::compile<Classes>(loss::MeanSquaredError{}, optim::SGD{}, metric::F1{.threshold = 1}),
                    Contains("has the threshold 1,"));
  CHECK_THROWS_WITH(shares(metric::AUC<>{}), Contains("metric::AUC reads logits, but the output that it looks at ends "
                                                      "with probabilities: write metric::AUC<>{.logits = false}"));
  CHECK_THROWS_WITH(logits(metric::AUC<>{.logits = false}), Contains("write metric::AUC<>{.logits = true}"));
  CHECK_NOTHROW(logits(metric::F1{}));
  CHECK_NOTHROW(logits(metric::F1{.threshold = 0.5F}));
  CHECK_NOTHROW(logits(metric::AUC<>{}));
  CHECK_NOTHROW(shares(metric::F1{.threshold = 0.5F}));
  CHECK_NOTHROW(shares(metric::AUC<>{.logits = false}));
  CHECK_NOTHROW(nn::compile<Scored>(
      nn::of<First>(loss::BinaryCrossEntropyOfProbabilities{}) + nn::of<Second>(loss::BinaryCrossEntropy{}),
      optim::SGD{}, nn::of<First>(metric::F1{.threshold = 0.5F}), nn::of<Second>(metric::F1{})));
  CHECK_THROWS_WITH(nn::compile<Scored>(nn::of<First>(loss::BinaryCrossEntropyOfProbabilities{}) +
                                            nn::of<Second>(loss::BinaryCrossEntropy{}),
                                        optim::SGD{}, nn::of<Second>(metric::F1{}), nn::of<First>(metric::F1{})),
                    has_threshold);
}

TEST_CASE("losses and metrics of 300,000 rows, or outputs of a row, are right to six digits", "[nn][loss][metric]") {
  constexpr auto n = std::size_t{300'000};
  auto y = std::vector<float>(n), t = y, d = y, zeros = y;
  for (std::size_t i = 0; i < n; ++i) t[i] = i % 200 == 0 ? 1.0F : 0.1F;  // the mean is 0.1045
  auto const two   = std::vector<float>(n, 0.5F);                         // logits, or probabilities of two classes
  auto const half  = std::vector<int>(n / 2);
  auto const mean  = [&](float sum, double of) { return static_cast<double>(sum) / of; };
  auto const check = [&](auto const& loss, double expected) {
    CHECK(mean(loss::sum_of<Cpu>(loss, n, 1, y.data(), t.data(), d.data()), n) == Approx(expected).epsilon(1e-6));
    CHECK(mean(loss::sum_of<Cpu>(loss, 1, n, y.data(), t.data(), d.data()), 1) == Approx(expected).epsilon(1e-6));
  };
  auto const small = static_cast<double>(0.1F), squares = 0.995 * small * small + 0.005;
  check(loss::MeanAbsoluteError{}, 0.995 * small + 0.005);
  check(loss::MeanSquaredError{}, squares);
  check(loss::Huber{}, squares / 2);
  check(loss::LogCosh{}, 0.995 * std::log(std::cosh(small)) + 0.005 * std::log(std::cosh(1.0)));
  check(loss::Hinge{}, 1);
  check(loss::BinaryCrossEntropy{}, std::log(2.0));
  auto const labels = [&](auto const& loss) {
    return mean(loss::sum_of<Cpu>(loss, n / 2, 2, two.data(), half.data(), d.data()), n / 2);
  };
  auto const shares = [&](auto const& loss) {
    return mean(loss::sum_of<Cpu>(loss, n / 2, 2, two.data(), two.data(), d.data()), n / 2);
  };
  for (auto const smoothing : {0.0F, 0.5F}) {
    CHECK(labels(loss::SparseCrossEntropy{smoothing}) == Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(labels(loss::SparseCrossEntropyOfProbabilities{smoothing}) == Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(shares(loss::CrossEntropy{smoothing}) == Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(shares(loss::CrossEntropyOfProbabilities{smoothing}) == Approx(std::log(2.0)).epsilon(1e-6));
  }
  CHECK(labels(loss::Weighted{loss::SparseCrossEntropy{}, {0.3F, 1}}) ==
        Approx(static_cast<double>(0.3F) * std::log(2.0)).epsilon(1e-6));
  CHECK(mean(metric::sum_of(metric::MeanAbsoluteError{}, n, 1, zeros.data(), t.data()), n) ==
        Approx(0.995 * small + 0.005).epsilon(1e-6));
  CHECK(mean(metric::sum_of(metric::MeanAbsoluteError{}, 1, n, zeros.data(), t.data()), 1) ==
        Approx(0.995 * small + 0.005).epsilon(1e-6));
}

TEST_CASE("evaluate of a batch of 300,000 rows is that of small ones, with weights of rows too", "[nn][loss][metric]") {
  struct Plain : nn::Sequential<nn::Input<1>, nn::Dense<1>> {};
  constexpr auto n = std::size_t{300'000};
  auto const x = std::vector<float>(n), weight = std::vector<float>(n, 0.3F);
  auto y = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) y[i] = i % 200 == 0 ? 1.0F : 0.1F;
  auto const right = 0.995 * static_cast<double>(0.1F) + 0.005;
  auto const of    = [&](auto&& trainer, auto const& all) {
    for (auto const batch : {300'000, 1'000}) {
      auto const scores = trainer.evaluate(all.batch(batch));
      CHECK(scores.rows() == n);
      CHECK(scores.loss() == Approx(right).epsilon(1e-6));
      CHECK(scores.metric(0) == Approx(right).epsilon(1e-6));
    }
  };
  of(Trainer{nn::compile<Plain>(loss::MeanAbsoluteError{}, optim::SGD{}, metric::MeanAbsoluteError{}),
             OneDeviceStrategy{Cpu{}}},
     data::from_tensors(x, y, 1));
  auto const all   = data::from_fields<Number, Wanted, Weight>(x, y, weight);
  auto const model = nn::compile<Numbered>((1 / 0.3F) * nn::of<Wanted>(loss::MeanAbsoluteError{}).weighted_by(Weight{}),
                                           optim::SGD{}, metric::MeanAbsoluteError{});
  of(Trainer{model, OneDeviceStrategy{Cpu{}}}, all);
}

TEST_CASE("class weights count rows, and all ones change no bit", "[nn][loss]") {
  auto const labels = some_targets<loss::SparseCrossEntropy>();
  auto const y      = some_outputs();
  auto plain = std::vector<float>(y.size()), weighted = plain;
  loss::SparseCrossEntropy{}.compute<Cpu>(rows, width, y.data(), labels.data(), plain.data());
  loss::Weighted{loss::SparseCrossEntropy{}, {1, 1, 1, 1}}.compute<Cpu>(rows, width, y.data(), labels.data(),
                                                                        weighted.data());
  CHECK(plain == weighted);
  auto const binary = loss::Weighted{loss::BinaryCrossEntropy{}, {1, 5}};
  auto const wanted = std::vector<float>{0, 1}, logits = std::vector<float>{0, 0};
  CHECK(binary.compute<Cpu>(2, 1, logits.data(), wanted.data(), plain.data()) == Approx(6 * std::log(2.0)));
}

TEST_CASE("a wrong number of class weights, or a wrong weight, is one sentence", "[nn][loss]") {
  auto const y      = some_outputs();
  auto d            = y;
  auto const labels = some_targets<loss::SparseCrossEntropy>();
  CHECK_THROWS_WITH(
      (loss::Weighted{loss::SparseCrossEntropy{}, {1, 2}}.compute<Cpu>(rows, width, y.data(), labels.data(), d.data())),
      Contains("loss::Weighted has 2 weights, but the network tells 4 classes apart with 4 outputs"));
  CHECK_THROWS_WITH(
      (loss::Weighted{loss::BinaryCrossEntropy{}, {1, 2, 3}}.compute<Cpu>(rows, 1, y.data(), y.data(), d.data())),
      Contains("has 3 weights, but the network tells 2 classes apart with 1 output"));
  CHECK_THROWS_WITH((loss::Weighted{loss::CrossEntropy{}, {1, -2}}),
                    Contains("the weight of a class is 0 or more, but that of class 1 is -2"));
}

TEST_CASE("options of losses out of range are one sentence", "[nn][loss]") {
  auto const y      = some_outputs();
  auto d            = y;
  auto const labels = some_targets<loss::SparseCrossEntropy>();
  CHECK_THROWS_WITH(
      loss::SparseCrossEntropy{.label_smoothing = -0.1F}.compute<Cpu>(rows, width, y.data(), labels.data(), d.data()),
      Contains("label_smoothing is a number from 0 to 1, got -0.1"));
  CHECK_THROWS_WITH(loss::BinaryFocalCrossEntropy{.gamma = -1}.row(y, y, d),
                    Contains("gamma of loss::BinaryFocalCrossEntropy is 0 or more, got -1"));
  CHECK_THROWS_WITH(loss::BinaryFocalCrossEntropy{.alpha = 2}.row(y, y, d),
                    Contains("alpha of loss::BinaryFocalCrossEntropy is from 0 to 1, got 2"));
  CHECK_THROWS_WITH(loss::Huber{.delta = 0}.compute<Cpu>(rows, width, y.data(), y.data(), d.data()),
                    Contains("delta of loss::Huber is above 0, got 0"));
}

TEST_CASE("a loss by row checks its targets before it computes", "[nn][loss]") {
  auto const y = some_outputs();
  auto d       = y;
  auto labels  = some_targets<Hinge>();
  labels[3]    = -1;
  CHECK_THROWS_WITH(loss::sum_of<Cpu>(Hinge{}, rows, width, y.data(), labels.data(), d.data()),
                    Contains("a label is 0 or more"));
  CHECK(d == y);
}

TEST_CASE("a loss says how many targets a row has", "[nn][loss]") {
  static_assert(loss::targets_of<LogCosh>(4) == 4 && loss::targets_of<Hinge>(4) == 1);
  static_assert(loss::targets_of<Between>(4) == 2 && loss::targets_of<loss::MeanSquaredError>(4) == 4);
  static_assert(loss::targets_of<loss::Weighted<Hinge>>(4) == 1);
  static_assert(loss::RowLoss<LogCosh> && !loss::RowLoss<loss::MeanSquaredError>);
}

TEST_CASE("losses and metrics say their options to other ranks", "[nn][loss]") {
  auto lines = std::vector<std::string>{};
  describe("loss", loss::Weighted{loss::SparseCrossEntropy{.label_smoothing = 0.1F}, {1, 0.5F}}, lines);
  describe("loss", loss::Huber{}, lines);
  describe("metric", metric::BinaryAccuracy{.threshold = 0.5F}, lines);
  describe("metric", metric::TopKAccuracy<3>{}, lines);
  CHECK(lines == std::vector<std::string>{
                     "loss Weighted<SparseCrossEntropy>", "loss Weighted<SparseCrossEntropy> label_smoothing 0.1",
                     "loss Weighted<SparseCrossEntropy> weights 1,0.5", "loss Huber", "loss Huber delta 1",
                     "metric BinaryAccuracy", "metric BinaryAccuracy threshold 0.5", "metric TopKAccuracy<3>"});
}

TEST_CASE("a metric is one function of a row, or a sum over rows", "[nn][metric]") {
  auto const y      = std::vector<float>{1, 5, 2, 7};
  auto const labels = std::vector<int>{1, 0};
  auto const bounds = std::vector<float>{0, 2, 9, 1, 1, 9};  // three for each row
  CHECK(metric::sum_of(Largest{}, 2, 2, y.data(), labels.data()) == 12);
  CHECK(metric::sum_of(metric::Accuracy{}, 2, 2, y.data(), labels.data()) == 1);
  CHECK(metric::sum_of(Below{}, 2, 2, y.data(), bounds.data(), 3) == 1);
  static_assert(metric::RowMetric<Largest, int> && !metric::RowMetric<Largest, float>);
}

TEST_CASE("a top-k hit is a row with fewer than k larger outputs", "[nn][metric]") {
  auto const y   = std::vector<float>{0.1F, 0.4F, 0.4F, 0.2F};
  auto const hit = [&](auto const& metric, int label) { return metric::sum_of(metric, 1, 4, y.data(), &label); };
  CHECK(hit(metric::TopKAccuracy<1>{}, 2) == 1);  // a tie is a hit
  CHECK(hit(metric::TopKAccuracy<2>{}, 3) == 0);
  CHECK(hit(metric::TopKAccuracy<3>{}, 3) == 1);
  CHECK(hit(metric::TopKAccuracy<3>{}, 0) == 0);
}

}  // namespace row_loss_test
