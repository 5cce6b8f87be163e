// SPDX-License-Identifier: Apache-2.0
//
// ResNet-20 on small colour pictures: residual blocks, batch normalization over the whole batch, SGD with momentum,
// weight decay of kernels alone, and a rate that warms up, then falls along a cosine. In each epoch every picture is
// moved and perhaps mirrored in another way, which depends on its place in the epoch, not on the replica.
//
//   tools/run 17_resnet                                           shapes drawn in code, ten classes
//   tools/run 17_resnet --data FOLDER --epochs 160                CIFAR-10: its six .bin files; or a folder of pictures for
//                                                                 each class, in train and in test
//
// Expect a line for each epoch, then the loss and the accuracy of pictures that it has not seen: about 0.5 after five
// epochs of 2,000 shapes.
#include <chorale/chorale.hpp>
#include <chorale/data/formats/image.hpp>

#include "support/pictures.hpp"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace chorale;

using Norm = nn::SyncBatchNorm<nn::Momentum<90>, nn::Epsilon<10>>;

template <int Filters, int Size = 3, int Step = 1>
using Conv = nn::Block<nn::Conv2D<Filters, Size, nn::Stride<Step>, nn::Pad<Size / 2>, nn::NoBias, nn::HeNormal>, Norm>;

template <int Filters, int Step = 1, class... Around>
using Basic = nn::Block<nn::Residual<Conv<Filters, 3, Step>, nn::ReLU, Conv<Filters>, Around...>, nn::ReLU>;

template <int Filters>  // (B, H, W, C) to (B, H / 2, W / 2, Filters)
using Stage = nn::Block<Basic<Filters, 2, nn::Shortcut<Conv<Filters, 1, 2>>>, nn::Repeat<2, Basic<Filters>>>;

struct ResNet20 : nn::Sequential<nn::Input<32, 32, 3>,  // (B, 32, 32, 3)
                                 Conv<16>, nn::ReLU,    // (B, 32, 32, 16)
                                 nn::Repeat<3, Basic<16>>,
                                 Stage<32>,                          // (B, 16, 16, 32)
                                 Stage<64>,                          // (B, 8, 8, 64)
                                 nn::AveragePool2D<8>, nn::Flatten,  // (B, 64)
                                 nn::Dense<10>> {};                  // (B, 10) logits

/// A function of map: about -2 to 2, moved by up to 4 pixels each way, mirrored half of the time.
auto varied() {
  return [moved = std::vector<std::uint8_t>{}](auto const& row, std::vector<float>& x, std::vector<int>& y,
                                               data::Place at) mutable {
    constexpr auto shape = data::ImageShape{32, 32, 3};
    auto const random    = at.random(Seed{3});
    data::shift(data::ImageView<std::uint8_t>{row.x, shape}, data::random_shift(4, random), moved);
    data::rescale(data::ImageView<std::uint8_t>{moved, shape}, 1.0F / 64, -2, x,
                  random.uniform(2) < 0.5F ? data::Mirror::columns : data::Mirror::none);
    y.assign(row.y.begin(), row.y.end());
  };
}
/// A function of map: the picture as it is, in the same unit.
auto const as_it_is = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
  data::rescale(data::ImageView<std::uint8_t>{row.x, {32, 32, 3}}, 1.0F / 64, -2, x);
  y.assign(row.y.begin(), row.y.end());
};

int main(int argc, char** argv) try {
  auto const o = example::parse_picture_options(argc, argv);
  return example::with_pictures(o, [&](auto const& train, auto const& test, std::size_t rows) {
    auto const steps = static_cast<std::int64_t>((rows + 31) / 32) * o.epochs;
    auto const rate  = optim::warm_up(steps / 10, 0.1F).then(optim::cosine(steps - steps / 10, 0.1F));
    auto const rule  = optim::SGD{
         .learning_rate = rate, .momentum = 0.9F, .weight_decay = 1e-4F, .decay = optim::SGD::Decay::in_gradient};
    auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
    auto const model = nn::compile<ResNet20>(loss::SparseCrossEntropy{},
                                             optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}},
                                             metric::Accuracy{});
    auto trainer = Trainer{model, MirroredStrategy{Cpu::split(Cpu{}.threads())}, RingAllReduce{}, LocalTransport{}, 1};
    trainer.fit(train.shuffle(rows).map(varied()).batch(32).prefetch(2), {.epochs = o.epochs});
    auto const scores = trainer.evaluate(test.map(as_it_is).batch(32));
    std::printf("pictures that it has not seen: loss %.4f accuracy %.4f\n", scores.loss(), scores["accuracy"]);
    for (auto const hash : trainer.hashes())
      if (hash != trainer.hashes()[0]) return 1;
    return scores["accuracy"] > 0.3 ? 0 : 1;  // guessing gives 0.1
  });
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
