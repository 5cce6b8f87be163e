// SPDX-License-Identifier: Apache-2.0
// What a model says of itself before ranks train it together.
#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;

namespace {

/// A layer of a program's own, which says nothing of itself.
template <int Times> struct Scaled : nn::Flatten {};

struct OneOfEach
    : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3, nn::Stride<2>, nn::Same, nn::NoBias, nn::HeNormal>,
                     nn::BatchNorm<nn::Momentum<90>, nn::Epsilon<10>>, nn::ReLU, nn::MaxPool2D<2>,
                     nn::Residual<nn::Conv2D<4, 3, nn::Same>, nn::SyncBatchNorm<>, nn::Shortcut<nn::Conv2D<4, 1>>>,
                     nn::Repeat<2, nn::Block<nn::GELU>>, nn::AveragePool2D<2, nn::Pad<1>>, Scaled<3>, nn::Dropout<30>,
                     nn::LeakyReLU<10>, nn::Dense<3, nn::HeUniform>> {};

/// An update rule of a program's own, which does not name its options.
struct OwnRule {
  static constexpr int slots = 0;
  float speed                = 0.25F;
  float global_clipnorm      = 2;

  float rate(optim::Moment) const { return speed; }
  template <class D> void update(optim::Update const&) const {}
};

template <class OptimizerState> std::vector<std::string> lines_with(OptimizerState rule) {
  auto all = nn::compile<OneOfEach>(loss::SparseCrossEntropy{}, rule, metric::Accuracy{}).lines();
  std::erase_if(all, [](auto const& line) { return !line.starts_with("optimizer "); });
  return all;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("a model's lines are its loss, optimizer, metrics, variables, layers and precision", "[nn][plan]") {
  auto const model =
      nn::compile<OneOfEach, nn::Precision<bf16>>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  CHECK(model.lines() == Lines{"loss SparseCrossEntropy",
                               "loss SparseCrossEntropy label_smoothing 0",
                               "optimizer Adam",
                               "optimizer Adam learning_rate 0.001",
                               "optimizer Adam beta_1 0.9",
                               "optimizer Adam beta_2 0.999",
                               "optimizer Adam epsilon 1e-07",
                               "optimizer Adam global_clipnorm 0",
                               "metric Accuracy",
                               "conv2d/kernel f32[3,3,1,4]",
                               "batch_normalization/gamma f32[4]",
                               "batch_normalization/beta f32[4]",
                               "batch_normalization/moving_mean f32[4]",
                               "batch_normalization/moving_variance f32[4]",
                               "conv2d_1/kernel f32[3,3,4,4]",
                               "conv2d_1/bias f32[4]",
                               "batch_normalization_1/gamma f32[4]",
                               "batch_normalization_1/beta f32[4]",
                               "batch_normalization_1/moving_mean f32[4]",
                               "batch_normalization_1/moving_variance f32[4]",
                               "conv2d_2/kernel f32[1,1,4,4]",
                               "conv2d_2/bias f32[4]",
                               "dense/kernel f32[16,3]",
                               "dense/bias f32[3]",
                               "layer 0 Input<8,8,1>",
                               "layer 1 Conv2D<4,3,Same,Stride<2>,HeNormal,NoBias>",
                               "layer 2 BatchNorm<momentum=0.9,epsilon=1e-05>",
                               "layer 3 ReLU",
                               "layer 4 MaxPool2D<2,Pad<0>,Stride<2>>",
                               "layer 5 Residual",
                               "layer 5.1 Conv2D<4,3,Same,Stride<1>,GlorotUniform>",
                               "layer 5.2 SyncBatchNorm<momentum=0.99,epsilon=0.001>",
                               "layer 5.3 Shortcut",
                               "layer 5.3.1 Conv2D<4,1,Pad<0>,Stride<1>,GlorotUniform>",
                               "layer 6 GELU",
                               "layer 7 GELU",
                               "layer 8 AveragePool2D<2,Pad<1>,Stride<2>>",
                               "layer 9 Scaled<3>",
                               "layer 10 Dropout<30>",
                               "layer 11 LeakyReLU<10>",
                               "layer 12 Dense<3,HeUniform>",
                               "products bf16",
                               "activations bf16"});
}

TEST_CASE("every number of an optimizer is a line, and every number of a schedule is in it", "[nn][plan]") {
  CHECK(lines_with(optim::SGD{.learning_rate   = optim::CosineDecay{0.1F, 1'000, 0.5F},
                              .momentum        = 0.9F,
                              .kind            = optim::SGD::Momentum::nesterov,
                              .global_clipnorm = 1}) ==
        Lines{"optimizer SGD", "optimizer SGD learning_rate CosineDecay(0.1,1000,0.5)", "optimizer SGD momentum 0.9",
              "optimizer SGD kind nesterov", "optimizer SGD global_clipnorm 1", "optimizer SGD weight_decay 0",
              "optimizer SGD decay decoupled"});
  CHECK(lines_with(optim::LossScaled{optim::AdamW{.learning_rate = optim::LinearWarmup{0, 0.1F, 50}}, 1'024, 7}) ==
        Lines{"optimizer LossScaled<AdamW>", "optimizer LossScaled<AdamW> learning_rate LinearWarmup(0,0.1,50)",
              "optimizer LossScaled<AdamW> weight_decay 0.004", "optimizer LossScaled<AdamW> beta_1 0.9",
              "optimizer LossScaled<AdamW> beta_2 0.999", "optimizer LossScaled<AdamW> epsilon 1e-07",
              "optimizer LossScaled<AdamW> global_clipnorm 0", "optimizer LossScaled<AdamW> initial_scale 1024",
              "optimizer LossScaled<AdamW> growth_steps 7"});
  CHECK(word_of(optim::Rate{optim::ExponentialDecay{0.1F, 10, 0.5F}}) == "ExponentialDecay(0.1,10,0.5)");
  CHECK(word_of(optim::decaying()) == "PiecewiseEpochs(0:0.001,3:1e-04,7:1e-05)");
}

TEST_CASE("an optimizer of a program's own is compared by its type, first rate and clipping", "[nn][plan]") {
  CHECK(lines_with(OwnRule{}) ==
        Lines{"optimizer OwnRule", "optimizer learning_rate 0.25", "optimizer global_clipnorm 2"});
}
