// SPDX-License-Identifier: Apache-2.0
//
// Networks whose products round their factors, against the same in float.
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/optim/loss_scaled.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

using namespace chorale;
using namespace chorale::nn;

namespace {

struct Denses : Sequential<Input<48>, Dense<64>, Tanh, Dense<32>, ReLU, Dense<10>> {};
struct Windows : Sequential<Input<12, 12, 3>, Conv2D<32, 3, Same>, ReLU, Conv2D<32, 3>, ReLU, MaxPool2D<2>,
                            Conv2D<16, 3>, Flatten, Dense<10>> {};

struct Image : Field<float, 12, 12, 3> {};
struct Answer : Field<float, 10> {};
struct Graphs : Graph<Image> {
  Conv2D<32, 3, Same> first;
  Conv2D<32, 3, Same> second;
  Dense<10> last;
  constexpr auto operator()(auto image) const {
    auto const x = relu(first(image));
    return outputs<Answer>(last(reshape<12 * 12 * 32>(x + relu(second(x)))));
  }
};
/// It says itself how it multiplies.
struct GraphsInHalves : Graphs {
  static constexpr auto products = Products::bf16;
};

template <class Net> auto learner() {
  return compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.05F}).instantiate(Cpu{}, 3);
}

/// The largest difference of two gradients, as a part of the largest gradient.
template <class Plan> double difference(Plan const& plan, Gradients const& a, Gradients const& b) {
  auto worst = 0.0F, largest = 0.0F;
  for (auto i = plan.body().begin; i < plan.body().end; ++i) {
    worst   = std::max(worst, std::abs(a.values[i] - b.values[i]));
    largest = std::max(largest, std::abs(a.values[i]));
  }
  return static_cast<double>(worst / largest);
}

bool rounds(std::string const& test) {
  auto runtime      = onednn::Runtime{};
  runtime.rounds_to = Products::bf16;
  if (runtime.factors() != onednn::f32) return true;
  std::printf("SKIPPED: %s: this CPU has no AMX, so oneDNN multiplies floats\n", test.c_str());
  return false;
}

}  // namespace

TEMPLATE_TEST_CASE("factors in bf16 leave two digits of every gradient", "[nn][products]", Denses, Windows) {
  auto const batch = tiny::batch<float>(33, TestType::input::size, TestType::output::size);
  auto exact       = learner<TestType>();
  auto rounded     = learner<WithProducts<TestType, Products::bf16>>();
  auto same        = learner<WithProducts<TestType, Products::f32>>();
  auto const ready = [](std::size_t) {};
  auto const loss  = exact.value_and_gradient(batch.view(), 0, ready).value;
  CHECK(rounded.value_and_gradient(batch.view(), 0, ready).value == Approx(loss).epsilon(2e-2));
  CHECK(same.value_and_gradient(batch.view(), 0, ready).value == loss);
  CHECK(difference(TestType::plan, exact.gradients(), same.gradients()) == 0);
  CHECK(difference(TestType::plan, exact.gradients(), rounded.gradients()) < 2e-2);
}

TEST_CASE("factors in bf16 are rounded where the CPU has a faster way for them", "[nn][products]") {
  if (!rounds("factors in bf16 are rounded where the CPU has a faster way for them")) return;
  auto const batch = tiny::batch<float>(33, Windows::input::size, Windows::output::size);
  auto exact       = learner<Windows>();
  auto rounded     = learner<WithProducts<Windows, Products::bf16>>();
  exact.value_and_gradient(batch.view(), 0, [](std::size_t) {});
  rounded.value_and_gradient(batch.view(), 0, [](std::size_t) {});
  CHECK(difference(Windows::plan, exact.gradients(), rounded.gradients()) > 1e-5);
}

TEMPLATE_TEST_CASE("a CPU keeps float under every Precision, and rounds the products of bf16", "[nn][products]", Denses,
                   Windows) {
  auto const batch    = tiny::batch<float>(33, TestType::input::size, TestType::output::size);
  auto const gradient = [&](auto model) {
    auto copy = model.instantiate(Cpu{}, 3);
    copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}, Together{});
    for (auto& g : copy.gradients().values) g /= copy.optimizer.loss_scale.value;
    return std::vector<float>(copy.gradients().body().begin(), copy.gradients().body().end());
  };
  auto const loss   = loss::MeanSquaredError{};
  auto const scaled = optim::LossScaled{optim::SGD{}};
  auto const plain  = gradient(compile<TestType>(loss, optim::SGD{}));
  CHECK(gradient(compile<TestType, Precision<float>>(loss, optim::SGD{})) == plain);
  CHECK(gradient(compile<TestType, Precision<fp16>>(loss, scaled)) == plain);
  CHECK(gradient(compile<TestType, Precision<bf16>>(loss, optim::SGD{})) ==
        gradient(compile<WithProducts<TestType, Products::bf16>>(loss, optim::SGD{})));
}

TEST_CASE("products of a network of calls are rounded by the same word", "[nn][products][graph]") {
  auto const rows     = tiny::batch<float>(33, 12 * 12 * 3, 10);
  auto const view     = rows.view();
  auto const batch    = Rows<Image, Answer>{view.x, view.y};
  auto loss           = std::vector<float>{};
  auto const gradient = [&](auto model) {
    auto copy = model.instantiate(Cpu{}, 3);
    loss.push_back(copy.value_and_gradient(batch, 0, LooksAtEnd{}).value);
    return std::vector<float>(copy.gradients().body().begin(), copy.gradients().body().end());
  };
  auto const of     = loss::MeanSquaredError{};
  auto const plain  = gradient(compile<Graphs>(of, optim::SGD{}));
  auto const halves = gradient(compile<Graphs, Precision<bf16>>(of, optim::SGD{}));
  CHECK(gradient(compile<Graphs, Precision<float>>(of, optim::SGD{})) == plain);
  CHECK(gradient(compile<WithProducts<Graphs, Products::bf16>>(of, optim::SGD{})) == halves);
  CHECK(gradient(compile<GraphsInHalves>(of, optim::SGD{})) == halves);
  CHECK(loss[1] == Approx(loss[0]).epsilon(2e-2));
  auto worst = 0.0F, largest = 0.0F;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    worst   = std::max(worst, std::abs(plain[i] - halves[i]));
    largest = std::max(largest, std::abs(plain[i]));
  }
  CHECK(largest > 0);
  CHECK(worst < 2e-2F * largest);
  auto const line = [](auto const& model) { return model.lines().back(); };
  CHECK(line(compile<Graphs>(of, optim::SGD{})) == "products f32");
  CHECK(line(compile<Graphs, Precision<bf16>>(of, optim::SGD{})) == "products bf16");
  CHECK(plan_of<WithProducts<Graphs, Products::bf16>>.hash == plan_of<Graphs>.hash);
  if (rounds("products of a network of calls are rounded by the same word")) CHECK(worst > 1e-5F * largest);
  else CHECK(worst == 0);
}
