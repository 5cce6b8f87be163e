// SPDX-License-Identifier: Apache-2.0
//
// Metrics with a state: exact for any number of replicas and any shares, in fit and in evaluate.
#include "test/support/count_allocations.hpp"
#include "test/trainer/counting_models.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace metric_states_test {

using namespace chorale;
using namespace counting;
using Catch::Contains;
using tiny::quietly;

namespace {

/// Counts of rows [first, last) of some outputs.
template <class M, class T>
metric::Counts<M> part(M const& metric, std::vector<float> const& y, std::vector<T> const& wanted, std::size_t width,
                       std::size_t first, std::size_t last) {
  auto const targets = wanted.size() * width / y.size();
  auto counts        = metric::Counts<M>{};
  counts.add(metric, last - first, width, y.data() + first * width, wanted.data() + first * targets);
  return counts;
}

template <class M, class T>
void check_laws(M const& metric, std::vector<float> const& y, std::vector<T> const& wanted, std::size_t width) {
  INFO(M::name);
  using Counts     = metric::Counts<M>;
  auto const n     = y.size() / width;
  auto const sum   = [](Counts a, Counts const& b) { return a += b; };
  auto const whole = part(metric, y, wanted, width, 0, n);
  auto const a = part(metric, y, wanted, width, 0, 7), b = part(metric, y, wanted, width, 7, 8);
  auto const c = part(metric, y, wanted, width, 8, n);
  CHECK(sum(sum(a, b), c) == sum(a, sum(b, c)));
  CHECK(sum(a, b) == sum(b, a));
  CHECK(sum(a, Counts{}) == a);
  CHECK(sum(Counts{}, a) == a);
  CHECK(sum(sum(a, b), c) == whole);
  CHECK(!(a == whole));
  CHECK(std::isfinite(Counts{}.result(metric)));
  for (std::size_t shares = 2; shares <= n; shares += 5) {  // in any order, the last one first
    auto total = Counts{};
    for (auto i = shares; i-- > 0;) total += part(metric, y, wanted, width, n * i / shares, n * (i + 1) / shares);
    CHECK(total == whole);
    CHECK(total.result(metric) == whole.result(metric));
  }
}

}  // namespace

TEST_CASE("states are a monoid, and any shares of rows give the state of all rows", "[metric]") {
  constexpr std::size_t n = 60;
  auto y = std::vector<float>(n * 3), one = std::vector<float>(n), bits = one, numbers = one;
  auto labels = std::vector<int>(n);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::exp(Random{5, 0}.uniform(i, -3, 3)) - 4;
  for (std::size_t i = 0; i < n; ++i) {
    one[i]     = y[i] * (i % 2 == 0 ? 1e-6F : 1e3F);  // sums of such squares are rounded
    labels[i]  = static_cast<int>(i * i % 3);
    bits[i]    = i % 3 == 0 ? 1.0F : 0.0F;
    numbers[i] = Random{6, 0}.uniform(i, -1, 1);
  }
  check_laws(metric::Precision{}, one, bits, 1);
  check_laws(metric::Recall{}, one, bits, 1);
  check_laws(metric::F1{}, y, y, 3);
  check_laws(metric::AUC<>{}, one, bits, 1);
  check_laws(metric::AUC<20, metric::Curve::precision_recall>{}, one, bits, 1);
  check_laws(metric::RootMeanSquaredError{}, one, numbers, 1);
  check_laws(metric::ConfusionMatrix<3>{}, y, labels, 3);
  check_laws(metric::MeanIoU<3>{}, y, labels, 3);
  check_laws(metric::PrecisionOf<2>{}, y, labels, 3);
  check_laws(metric::RecallOf<2>{}, y, labels, 3);
  check_laws(metric::F1Of<0>{}, y, labels, 3);
  check_laws(metric::Perplexity{}, y, labels, 3);
  check_laws(Spread{}, y, labels, 3);
  static_assert(metric::F1Of<0>::name == "class_0_f1" && metric::RecallOf<12>::name == "class_12_recall");
}

TEST_CASE("an exact sum rounds nothing, whatever the order and the sizes", "[metric]") {
  auto const tiniest = std::numeric_limits<float>::denorm_min(), largest = std::numeric_limits<float>::max();
  auto const sum = [](std::vector<float> const& all) {
    auto state = std::array<double, metric::ExactSum::size>{};
    for (auto const x : all) metric::ExactSum::add(state, x);
    return metric::ExactSum::value(state);
  };
  CHECK(sum({}) == 0);
  for (auto const x : {1.0F, -1.5F, 0.1F, tiniest, -7 * tiniest, largest, -largest, 1.17549435e-38F, 16777215.0F})
    CHECK(sum({x}) == static_cast<double>(x));
  CHECK(sum({largest, tiniest, -largest}) == static_cast<double>(tiniest));
  CHECK(sum({largest, largest, -1}) == 2 * static_cast<double>(largest));  // rounded once, to a double
  CHECK(sum({1e20F, 1, -1e20F, 2}) == 3);
  auto many = std::vector<float>(100'000);
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i] = std::ldexp(Random{1, 2}.uniform(i, -1, 1), static_cast<int>(i % 90) - 45);
  auto const forward = sum(many);
  std::reverse(many.begin(), many.end());
  CHECK(sum(many) == forward);
  auto const infinite = std::numeric_limits<float>::infinity();
  CHECK(sum({1, infinite, 2}) == static_cast<double>(infinite));
  CHECK(std::isnan(sum({infinite, -infinite})));
}

TEST_CASE("1 to 4 replicas have the same results in fit and evaluate, over uneven shares", "[trainer][metric]") {
  check_replicas(tiny::uneven(), [](int n) { return trainer_of(classes(), MirroredStrategy{Cpu::logical(n)}); },
                 {"confusion_matrix", "class_1_f1", "mean_iou"});
  check_replicas(binary_rows(), [](int n) { return trainer_of(binary(), MirroredStrategy{Cpu::logical(n)}); },
                 {"precision", "recall", "f1", "auc"});
}

TEST_CASE("evaluate gives what all outputs and targets give, and the counts", "[trainer][metric]") {
  auto const data   = tiny::uneven();
  auto trainer      = trainer_of(classes(), MirroredStrategy{Cpu::logical(3)});
  auto const rows   = data.rows.rows;
  auto const y      = trainer.predict(data).values;
  auto const scores = trainer.evaluate(data);
  auto const table  = part(metric::ConfusionMatrix<3>{}, y, data.rows.y, 3, 0, rows);
  CHECK(counted(scores, "confusion_matrix") == std::vector<double>(table.sums.begin(), table.sums.end()));
  CHECK(scores["confusion_matrix"] == table.result({}));
  CHECK(scores["confusion_matrix"] == Approx(scores["accuracy"]));
  CHECK(scores["mean_iou"] == part(metric::MeanIoU<3>{}, y, data.rows.y, 3, 0, rows).result({}));
  CHECK(scores["perplexity"] == part(metric::Perplexity{}, y, data.rows.y, 3, 0, rows).result({}));
  CHECK(scores["perplexity"] == Approx(std::exp(scores.loss())).epsilon(1e-5));
  CHECK(scores["spread"] == part(Spread{}, y, data.rows.y, 3, 0, rows).result({}));
  CHECK(all_of(trainer.evaluate(data)) == all_of(scores));  // it begins with no counts
  CHECK_THROWS_WITH(scores.counts("accuracy"), Contains("accuracy is a mean over rows, and has no counts"));
  CHECK_THROWS_WITH(scores.counts("auc"), Contains("the model has no metric auc"));
  auto text = std::ostringstream{};
  text << scores;
  CHECK_THAT(text.str(), Contains("  mean_iou 0.") && Contains("  perplexity "));
}

TEST_CASE("accumulated batches count once, and steps that are left out do not", "[trainer][metric]") {
  auto const data        = tiny::some(5);
  auto trainer           = trainer_of(classes(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{});
  auto const accumulated = trainer.fit(data, {.show = Show::nothing, .accumulate = 2});
  CHECK(sum_of(counted(accumulated[0].scores, "confusion_matrix")) == 60);
  auto bad           = tiny::Batches<float>{tiny::batch<float>(60, 64, 1), data.sizes};
  bad.rows.y[19]     = std::numeric_limits<float>::quiet_NaN();  // in the second batch of twelve
  auto other         = trainer_of(binary(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{});
  auto const skipped = other.fit(bad, {.show = Show::nothing, .on_non_finite = NonFinite::skip});
  CHECK(skipped[0].skipped == 1);
  CHECK(skipped[0].scores.rows() == 48);
  CHECK(counted(skipped[0].scores, "spread")[0] == 48);
  CHECK(std::isfinite(skipped[0].scores["root_mean_squared_error"]));
}

namespace {

/// Looks at the scores after each step, and what this thread allocates between two looks.
struct Looks {
  Scores last{};
  std::vector<int> allocated = std::vector<int>(64);
  std::size_t steps          = 0;
  bool evaluates             = false;

  void on_step_end(auto& trainer, StepEnd const& end) {
    allocated[steps++] = test::allocations;
    last               = end.scores;
    if (evaluates) trainer.evaluate(tiny::some(1));
  }
};

}  // namespace

TEST_CASE("scores of a step are those of the epoch so far, without counts or allocation", "[trainer][metric]") {
  auto const data  = tiny::some(8);
  auto trainer     = trainer_of(classes(), OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{});
  auto looks       = Looks{};
  auto const epoch = trainer.fit(data, quietly, looks).front();
  for (std::size_t i = 0; i < epoch.scores.metrics(); ++i) CHECK(looks.last.metric(i) == epoch.scores.metric(i));
  CHECK_THROWS_WITH(looks.last.counts("confusion_matrix"), Contains("before replicas have added them up"));
  auto plain  = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                       OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 7};
  auto before = Looks{};
  plain.fit(data, quietly, before);
  REQUIRE(looks.steps == 8);
  for (std::size_t i = 2; i < looks.steps; ++i)
    CHECK(looks.allocated[i] - looks.allocated[1] == before.allocated[i] - before.allocated[1]);
}

TEST_CASE("evaluate in the middle of an epoch changes none of its counts", "[trainer][metric]") {
  auto const data    = tiny::some(6);
  auto undisturbed   = trainer_of(classes(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{});
  auto other         = trainer_of(classes(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{});
  auto const options = FitOptions{.show = Show::nothing, .accumulate = 2};
  auto looks = Looks{}, evaluates = Looks{.evaluates = true};
  auto const one = undisturbed.fit(data, options, looks), two = other.fit(data, options, evaluates);
  CHECK(all_of(one[0].scores) == all_of(two[0].scores));
  CHECK(counted(one[0].scores, "confusion_matrix") == counted(two[0].scores, "confusion_matrix"));
}

}  // namespace metric_states_test
