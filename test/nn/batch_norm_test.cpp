// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization on one copy, against the definition in double and central differences.
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/batch_norm.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::nn;

namespace {

struct RowNet : Sequential<Input<3>, BatchNorm<>, Dense<2>> {};
struct Images : Sequential<Input<5, 5, 2>, Conv2D<3, 2>, BatchNorm<>, Tanh, Flatten, Dense<3>> {};
struct Plain : Sequential<Input<5, 4, 3>, BatchNorm<Epsilon<50000>>, Flatten, Dense<3>> {};
struct Wide : Sequential<Input<4, 4, 1>, Conv2D<21, 2>, SyncBatchNorm<Momentum<50>>, Sigmoid, Flatten, Dense<3>> {};
struct Deep : Sequential<Input<4>, Dense<9>, BatchNorm<>, GELU, Dense<17>, SyncBatchNorm<>, Tanh, Dense<3>> {};

struct Rectified : Sequential<Input<5, 5, 2>, Conv2D<8, 2>, BatchNorm<>, ReLU, Flatten, Dense<3>> {};

auto const alone = [](std::size_t) {};

template <class Net> auto copy_of() {
  return compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F}).instantiate(Cpu{}, 3);
}
template <class Net> auto frozen_copy_of() {
  auto const rule = optim::Grouped{optim::SGD{.learning_rate = 0.1F}, {optim::frozen("*/moving_*")}};
  return compile<Net>(loss::MeanSquaredError{}, rule).instantiate(Cpu{}, 3);
}

template <class TestType> void check_differences(auto copy) {
  auto const batch = tiny::batch<float>(7, TestType::input::size, TestType::output::size);
  auto const loss  = [&] { return copy.value_and_gradient(batch.view(), 0, alone, Together{}).value; };
  for (auto const& v : TestType::plan.variables)  // off their trivial first values
    if (v.spec.trained() && v.spec.rank == 1)
      for (std::size_t i = 0; i < v.size; ++i)
        copy.net.variables().values[v.offset + i] += Random{5, v.offset}.uniform(i, -0.4F, 0.4F);
  if constexpr (std::is_same_v<TestType, Rectified>)  // channels that are far from 0
    for (std::size_t c = 0; c < 8; ++c) copy.net.variables()[3].value[c] = c % 2 == 0 ? 3.0F : -3.0F;

  loss();
  auto const got = std::vector<float>(copy.gradients().values.begin(), copy.gradients().values.end());
  for (std::size_t v = 0; v < copy.net.variables().size(); ++v) {
    auto const variable = copy.net.variables()[v];
    if (!TestType::plan.variables[v].spec.trained()) continue;
    for (std::size_t i = 0; i < variable.value.size(); i += 1 + variable.value.size() / 23) {
      auto const keep   = variable.value[i];
      constexpr float h = 4e-3F;
      variable.value[i] = keep + h;
      auto const above  = loss();
      variable.value[i] = keep - h;
      auto const below  = loss();
      variable.value[i] = keep;
      INFO(variable.name << "[" << i << "]");
      CHECK(got[TestType::plan.variables[v].offset + i] ==
            Approx((above - below) / (2 * h)).epsilon(0.02).margin(2e-3));
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("gradients through batch normalization agree with central differences", "[nn][batch_norm]", RowNet,
                   Images, Plain, Wide, Deep, Rectified) {
  check_differences<TestType>(copy_of<TestType>());
  auto copy = frozen_copy_of<TestType>();
  for (auto const& v : TestType::plan.variables)
    for (std::size_t i = 0; i < v.size && !v.spec.trained(); ++i)
      copy.net.variables().values[v.offset + i] += Random{6, v.offset}.uniform(i, -0.4F, 0.4F);
  check_differences<TestType>(std::move(copy));
}

TEST_CASE("in training, frozen moving statistics are used as in evaluation, and keep their bits", "[nn][batch_norm]") {
  auto const batch = tiny::batch<float>(7, 50, 3);
  auto copy        = frozen_copy_of<Images>();
  auto other       = copy_of<Images>();
  auto const all   = copy.net.variables();
  for (float& x : all[4].value) x = 0.25F;
  auto const moving = [&] { return std::vector<float>{all[5].value.begin(), all[5].value.end()}; };
  auto const before = moving();
  for (int step = 0; step < 5; ++step) {
    auto sums = std::array<float, plan::header>{};
    copy.evaluate(batch.view(), sums);
    auto const loss = copy.value_and_gradient(batch.view(), 0, alone, Together{}).value;
    CHECK(loss == sums[0]);
    CHECK(loss != other.value_and_gradient(batch.view(), 0, alone, Together{}).value);
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  }
  CHECK(moving() == before);
  CHECK(std::ranges::all_of(all[4].value, [](float x) { return x == 0.25F; }));
}

namespace {

/// What batch normalization gives, by definition, for x (rows, channels): gamma and beta are 1 + c / 8 and c / 4.
std::vector<double> by_definition(std::vector<float> const& x, std::size_t channels, double epsilon) {
  auto y          = std::vector<double>(x.size());
  auto const rows = x.size() / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    double mean = 0, variance = 0;
    for (std::size_t r = 0; r < rows; ++r) mean += static_cast<double>(x[r * channels + c]) / static_cast<double>(rows);
    for (std::size_t r = 0; r < rows; ++r)
      variance += std::pow(static_cast<double>(x[r * channels + c]) - mean, 2) / static_cast<double>(rows);
    for (std::size_t r = 0; r < rows; ++r)
      y[r * channels + c] = (1 + static_cast<double>(c) / 8) * (static_cast<double>(x[r * channels + c]) - mean) /
                                std::sqrt(variance + epsilon) +
                            static_cast<double>(c) / 4;
  }
  return y;
}

/// The kernel by itself on an image of (2, 3, 5, channels), x and dy in the layout of this tag.
struct Alone {
  static constexpr int rows = 2, height = 3, width = 5;

  int channels;
  std::size_t size = static_cast<std::size_t>(rows * height * width * channels);
  onednn::Runtime runtime{};
  onednn::desc plain   = onednn::desc{{rows, channels, height, width}, onednn::f32, onednn::tag::nhwc};
  std::vector<float> x = std::vector<float>(size), dy = std::vector<float>(size), y{}, dx{};
  std::vector<float> gamma{}, beta{}, mean{}, variance{}, d_gamma{}, d_beta{}, d_mean{}, d_variance{};

  explicit Alone(int n) : channels{n} {
    for (std::size_t i = 0; i < size; ++i) {
      x[i]  = Random{3, 1}.uniform(i, -1, 2);
      dy[i] = Random{3, 2}.uniform(i, -1, 1);
    }
    auto const all = static_cast<std::size_t>(channels);
    for (auto* some : {&gamma, &beta, &mean, &variance, &d_gamma, &d_beta, &d_mean, &d_variance}) some->resize(all);
    for (std::size_t c = 0; c < all; ++c) gamma[c] = 1 + static_cast<float>(c) / 8, beta[c] = static_cast<float>(c) / 4;
  }

  void run(onednn::tag tag) {
    auto const in   = onednn::desc{{rows, channels, height, width}, onednn::f32, tag};
    auto kernel     = Kernels<Cpu>::BatchNorm{runtime, in, plain, channels, 1e-3F, Normalize::over_share};
    auto const out  = kernel.out();
    auto memory     = Cpu::block{in.get_size() * 2 + out.get_size() * 2 + kernel.workspace() + 256};
    auto cut        = onednn::Cutter{memory.data()};
    auto const at_x = cut.take(in), at_dx = cut.take(in), at_y = cut.take(out), at_dy = cut.take(out);
    kernel.bind({.x          = at_x,
                 .y          = at_y,
                 .dx         = at_dx,
                 .dy         = at_dy,
                 .kernel     = gamma.data(),
                 .bias       = beta.data(),
                 .d_kernel   = d_gamma.data(),
                 .d_bias     = d_beta.data(),
                 .mean       = mean.data(),
                 .variance   = variance.data(),
                 .d_mean     = d_mean.data(),
                 .d_variance = d_variance.data(),
                 .workspace  = cut.take_bytes(0)});
    onednn::reorder(runtime, plain, x.data(), in, at_x)();
    kernel.forward(Pass{.training = true});
    onednn::reorder(runtime, plain, dy.data(), out, at_dy)();
    kernel.backward(Pass{.training = true});
    y.resize(size), dx.resize(size);
    onednn::reorder(runtime, out, at_y, plain, y.data())();
    onednn::reorder(runtime, in, at_dx, plain, dx.data())();
  }
};

}  // namespace

TEST_CASE("batch normalization is its definition, in every layout", "[nn][batch_norm]") {
  auto const channels = GENERATE(1, 3, 8, 13, 16, 24, 35);
  auto kernel         = Alone{channels};
  auto const n        = static_cast<std::size_t>(channels);
  auto const want     = by_definition(kernel.x, n, 1e-3);
  using onednn::tag;
  for (auto const layout : {tag::nhwc, tag::nchw, tag::nChw8c, tag::nChw16c, tag::chwn}) {
    kernel.run(layout);
    auto apart = 0.0, slope_apart = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i)
      apart = std::max(apart, std::abs(static_cast<double>(kernel.y[i]) - want[i]));
    CHECK(apart < 1e-5);
    for (std::size_t i = 0; i < want.size(); i += 1 + want.size() / 11) {  // d Σ y · dy / dx[i], in double
      auto const at = [&](float h) {
        auto moved = kernel.x;
        moved[i] += h;
        auto const y = by_definition(moved, n, 1e-3);
        auto sum     = 0.0;
        for (std::size_t k = 0; k < y.size(); ++k) sum += y[k] * static_cast<double>(kernel.dy[k]);
        return std::pair{sum, static_cast<double>(moved[i])};
      };
      auto const above = at(1e-3F), below = at(-1e-3F);
      auto const slope = (above.first - below.first) / (above.second - below.second);
      slope_apart      = std::max(slope_apart, std::abs(slope - static_cast<double>(kernel.dx[i])));
    }
    CHECK(slope_apart < 1e-4);
    for (std::size_t c = 0; c < n; ++c) {
      double d_gamma = 0, d_beta = 0, mean = 0;
      for (std::size_t i = c; i < want.size(); i += n) {
        auto const dy = static_cast<double>(kernel.dy[i]);
        d_beta += dy;
        d_gamma += dy * (want[i] - static_cast<double>(c) / 4) / (1 + static_cast<double>(c) / 8);
        mean += static_cast<double>(kernel.x[i]) * static_cast<double>(n) / static_cast<double>(want.size());
      }
      CHECK(static_cast<double>(kernel.d_gamma[c]) == Approx(d_gamma).margin(1e-4));
      CHECK(static_cast<double>(kernel.d_beta[c]) == Approx(d_beta).margin(1e-5));
      CHECK(static_cast<double>(kernel.d_mean[c]) == Approx(2 * mean).margin(1e-5));
    }
  }
}

TEST_CASE("batch normalization has Keras' variables; its moving ones are planned and not counted", "[nn][batch_norm]") {
  auto names = std::vector<std::string>{};
  for (auto const& v : Deep::plan.variables)
    if (std::string_view{v.name}.starts_with("batch")) names.emplace_back(std::string_view{v.name});
  CHECK(names == std::vector<std::string>{
                     "batch_normalization/gamma", "batch_normalization/beta", "batch_normalization/moving_mean",
                     "batch_normalization/moving_variance", "batch_normalization_1/gamma", "batch_normalization_1/beta",
                     "batch_normalization_1/moving_mean", "batch_normalization_1/moving_variance"});
  static_assert(RowNet::plan.parameters == 6 + 8);
  auto copy = copy_of<RowNet>();
  CHECK(copy.net.variables()[0].value[2] == 1);
  CHECK(copy.net.variables()[1].value[2] == 0);
  CHECK(copy.net.variables()[2].value[2] == 0);
  CHECK(copy.net.variables()[3].value[2] == 1);
}

TEMPLATE_TEST_CASE("an update moves statistics by Keras' rule, whatever the optimizer does", "[nn][batch_norm]",
                   optim::SGD, optim::Adam, optim::AdamW) {
  auto const batch = tiny::batch<float>(6, 3, 2);
  auto copy        = compile<RowNet>(loss::MeanSquaredError{}, TestType{}).instantiate(Cpu{}, 3);
  auto mean = std::array<double, 3>{}, variance = std::array<double, 3>{1, 1, 1};
  for (int step = 0; step < 3; ++step) {
    copy.value_and_gradient(batch.view(), 0, alone, Together{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    for (std::size_t c = 0; c < 3; ++c) {
      double sum = 0, squares = 0;
      for (std::size_t r = 0; r < 6; ++r) {
        auto const v = static_cast<double>(batch.x[3 * r + c]);
        sum += v / 6, squares += v * v / 6;
      }
      mean[c]     = 0.99 * mean[c] + 0.01 * sum;
      variance[c] = 0.99 * variance[c] + 0.01 * (squares - sum * sum);
      CHECK(static_cast<double>(copy.net.variables()[2].value[c]) == Approx(mean[c]).margin(1e-7));
      CHECK(static_cast<double>(copy.net.variables()[3].value[c]) == Approx(variance[c]).margin(1e-6));
    }
  }
  for (auto const& v : RowNet::plan.variables)  // the optimizer keeps nothing of them
    if (!v.spec.trained())
      for (std::size_t i = 0; i < v.size; ++i) CHECK(copy.optimizer.slots()[v.offset - plan::header + i] == 0);
}

TEST_CASE("in evaluation the moving statistics are used, and nothing moves", "[nn][batch_norm]") {
  struct Alike : Sequential<Input<2>, BatchNorm<Epsilon<1>>> {};
  auto copy       = compile<Alike>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  auto const vars = copy.net.variables();
  auto const set  = [&](std::size_t v, float a, float b) { vars[v].value[0] = a, vars[v].value[1] = b; };
  set(0, 2, 3), set(1, -1, 5), set(2, 10, -4), set(3, 4, 9);
  auto const before = copy.hash();
  auto const x      = std::vector<float>{12, -1, 8, -7, 10, -4};
  auto const y      = copy.predict(BasicBatch<float, float>{.x = x, .rows = 3});
  auto const want   = std::vector<double>{1, 8, -3, 2, -1, 5};
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(static_cast<double>(y[i]) == Approx(want[i]).epsilon(1e-6));
  CHECK(copy.hash() == before);
}

TEST_CASE("a step that is skipped for a NaN leaves the moving statistics alone", "[nn][batch_norm]") {
  auto batch                   = tiny::batch<float>(6, 3, 2);
  auto copy                    = copy_of<RowNet>();
  batch.x[4]                   = std::nanf("");
  copy.optimizer.on_non_finite = NonFinite::skip;
  auto const before            = copy.hash();
  copy.value_and_gradient(batch.view(), 0, alone, Together{});
  copy.optimizer.apply(copy.net.variables(), copy.gradients());
  CHECK(copy.optimizer.skipped == 1);
  CHECK(copy.hash() == before);
}
