// SPDX-License-Identifier: Apache-2.0
//
// Every layer's gradient against central differences of the loss, in networks of a few numbers.
#include "test/nn/differences.hpp"
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::nn;
using test::check_gradients;

namespace {

struct Convolutions : Sequential<Input<6, 6, 2>, Conv2D<3, 3, Same>, Tanh, Conv2D<2, 2, Stride<2>>, Flatten, Dense<3>> {
};
struct MaxPools : Sequential<Input<6, 6, 1>, Conv2D<2, 3>, Sigmoid, MaxPool2D<2>, Flatten, Dense<3>> {};
struct AveragePools : Sequential<Input<5, 5, 1>, Conv2D<2, 2>, AveragePool2D<2>, ELU, Flatten, Dense<3>> {};
struct PaddedPools
    : Sequential<Input<5, 5, 1>, Conv2D<2, 2, HeNormal>, AveragePool2D<2, Same, Stride<2>>, Flatten, Dense<3>> {};
struct Smooth : Sequential<Input<4>, Dense<5>, GELU, Dense<5>, SiLU, Dense<5>, Softplus, Dense<3>> {};
struct Kinked : Sequential<Input<4>, Dense<5>, ReLU, Dense<5, HeUniform>, LeakyReLU<>, Dense<3>> {};
struct Chained : Sequential<Input<4>, Dense<5>, Tanh, Sigmoid, Tanh, Dense<3>> {};  // in-place after in-place
struct Dropped : Sequential<Input<4>, Dense<16>, Tanh, Dropout<40>, Dense<3>> {};
struct Distribution : Sequential<Input<4>, Dense<3>, Softmax, Dense<3>> {};

}  // namespace

TEMPLATE_TEST_CASE("every gradient agrees with central differences", "[nn]", Convolutions, MaxPools, AveragePools,
                   PaddedPools, Smooth, Kinked, Chained, Dropped, Distribution) {
  check_gradients<TestType>();
}

TEST_CASE("images come out channels last, whatever the layout of the last layer", "[nn]") {
  struct Image : Sequential<Input<6, 6, 2>, Conv2D<32, 3, Same>> {};
  struct Row : Sequential<Input<6, 6, 2>, Conv2D<32, 3, Same>, Flatten> {};
  auto const batch = tiny::batch<float>(5, Image::input::size, Image::output::size);
  auto const learn = [&]<class Net>(Net) {
    auto copy = compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 3);
    copy.value_and_gradient(batch.view(), 0, [](std::size_t) {});
    auto all       = std::vector<float>(copy.gradients().values.begin(), copy.gradients().values.end());
    auto const out = copy.predict(batch.view());
    all.insert(all.end(), out.begin(), out.end());
    return all;
  };
  CHECK(learn(Image{}) == learn(Row{}));
}

TEST_CASE("gradients become final from the front of the buffer to its end", "[nn][plan]") {
  auto const batch = tiny::batch<float>(2, 72, 3);
  auto copy        = compile<Convolutions>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 3);
  auto ends        = std::vector<std::size_t>{};
  copy.value_and_gradient(batch.view(), 0, [&](std::size_t end) { ends.push_back(end); });
  CHECK(std::is_sorted(ends.begin(), ends.end()));
  CHECK(ends.front() == plan::header);
  CHECK(ends.back() == Convolutions::plan.elements);
  CHECK(ends.size() == 5);  // header, dense, two convolutions, trailer
}

TEST_CASE("dropout drops the same rows whatever the share they are in", "[nn]") {
  auto const batch = tiny::batch<float>(6, 4, 3);
  auto const model = compile<Dropped>(loss::MeanSquaredError{}, optim::SGD{});
  auto whole       = model.instantiate(Cpu{}, 3);
  auto parts       = model.instantiate(Cpu{}, 3);
  whole.value_and_gradient(batch.view(), 0, [](std::size_t) {});
  auto sum = std::vector<float>(Dropped::plan.elements);
  for (std::size_t first = 0; first < 6; first += 2) {
    parts.value_and_gradient(batch.view(first, 2), first, [](std::size_t) {});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts.gradients().values[i];
  }
  for (auto i = Dropped::plan.body().begin; i < Dropped::plan.body().end; ++i)
    CHECK(sum[i] == Approx(whole.gradients().values[i]).margin(1e-5));
}

TEST_CASE("dropout keeps the mean in training and does nothing otherwise", "[nn]") {
  auto x          = std::vector<float>(100'000, 1.0F);
  auto const pass = Pass{.training = true, .now = {.seed = 5}};
  Kernels<Cpu>::dropout(1000, 100, x.data(), 0.4F, pass, 1);
  double sum = 0, zeros = 0;
  for (float const v : x) sum += v, zeros += v == 0.0F ? 1 : 0;
  CHECK(zeros / 100'000 == Approx(0.4).margin(0.008));  // five standard errors
  CHECK(sum / 100'000 == Approx(1.0).margin(0.014));

  auto const batch        = tiny::batch<float>(6, 4, 3);
  auto copy               = compile<Dropped>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 3);
  auto const first        = std::vector<float>(copy.predict(batch.view()).begin(), copy.predict(batch.view()).end());
  copy.optimizer.now.step = 9;
  auto const again        = copy.predict(batch.view());
  CHECK(std::equal(first.begin(), first.end(), again.begin()));
}

TEST_CASE("an empty share gives no loss and zero gradients", "[nn]") {
  auto const batch = tiny::batch<float>(4, 4, 3);
  auto copy        = compile<Smooth>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 3);
  copy.value_and_gradient(batch.view(), 0, [](std::size_t) {});
  auto const nothing = copy.value_and_gradient(batch.view(0, 0), 0, [](std::size_t) {});
  CHECK(nothing.count == 0);
  auto const values  = copy.gradients().values;
  auto const trailer = StepTrailer{values};
  for (float const g : values.first(values.size() - plan::trailer)) CHECK(g == 0.0F);
  for (float const n : {trailer.faults(), trailer.rank(), trailer.variable(), trailer.summed()}) CHECK(n == 0.0F);
  CHECK(trailer.digest()[0] == 1);  // but its variables are compared
}

TEST_CASE("a batch that does not fit the network is refused with both numbers", "[nn]") {
  auto const narrow = tiny::batch<float>(4, 3, 3);
  auto const wide   = tiny::batch<float>(4, 4, 5);
  auto copy         = compile<Smooth>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 3);
  CHECK_THROWS_WITH(copy.predict(narrow.view()),
                    Catch::Contains("takes rows of (4,), 16 numbers for 4 rows, but the batch has 12"));
  CHECK_THROWS_WITH(copy.value_and_gradient(wide.view(), 0, [](std::size_t) {}),
                    Catch::Contains("the loss takes 3 targets a row, 12 for 4 rows, but the batch has 20"));
}

TEST_CASE("a label out of range is refused with row and range", "[nn]") {
  auto batch = tiny::batch<int>(4, 4, 1);
  batch.y    = {0, 1, 3, 2};
  auto copy  = compile<Smooth>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(Cpu{}, 3);
  CHECK_THROWS_WITH(copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}),
                    Catch::Contains("row 2 of the batch has label 3, but the network has outputs for 0 to 2"));
}
