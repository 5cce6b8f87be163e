// SPDX-License-Identifier: Apache-2.0
//
// MNIST with a transformer: an image is 16 patches of 7 x 7 pixels, behind a trained vector from which the last layer
// tells the digit. 4 blocks of attention without a mask, 64 wide; AdamW, whose rate warms up, then falls along a cosine.
// One replica per core.
//
//   tools/run 18_vision_transformer                        drawn digits
//   tools/run 18_vision_transformer --data data/mnist      0.980 on MNIST
//
// Expect the number of devices, three epochs whose losses fall, then a line such as
//   test: loss 0.0667 accuracy 0.9796 (10000 images)
#include "support/options.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

using namespace chorale;

constexpr int num_patches = 16, vector_size = 64, num_heads = 4;

struct Image : Field<float, 28, 28, 1> {};
struct Digit : Field<int, 1> {};  // 0 to 9

struct Block {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * vector_size> queries_keys_values;
  nn::Dense<2 * vector_size> wide;
  nn::Dense<vector_size> mixed, narrow;

  constexpr auto operator()(auto x) const {  // (B, 17, 64)
    auto const y = x + mixed(nn::Heads<num_heads>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

struct VisionTransformer : nn::Graph<Image> {
  nn::Conv2D<vector_size, 7, nn::Stride<7>> patches;
  nn::ClassToken token;
  nn::Positions<num_patches + 1, vector_size> positions;
  std::array<Block, 4> blocks;
  nn::LayerNorm last;
  nn::Dense<10> digit;

  constexpr auto operator()(auto image) const {
    auto x = positions(token(nn::reshape<num_patches, vector_size>(patches(image))));  // (B, 17, 64)
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Digit>(digit(nn::reshape<vector_size>(nn::slice<0, 1, 0>(last(x)))));
  }
};

/// Rows of images and digits, of rows of bytes.
auto as_fields(auto const& rows) {
  return rows.map(data::scale).template map<Image, Digit>([](auto const& row, auto& to) {
    to[Image{}].assign(row.x.begin(), row.x.end());
    to[Digit{}].assign(row.y.begin(), row.y.end());
  });
}

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--replicas"}}, [](example::Options const& o) {
    auto strategy = MirroredStrategy{Cpu::split(o.replicas)};
    std::printf("Number of devices: %d\n", strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto train = as_fields(rows).cache().shuffle(10'000, o.seed).batch(o.batch);
      auto test  = as_fields(test_rows).batch(256);

      auto const steps = o.epochs * static_cast<int>(train.size().value());
      auto const rate  = optim::warm_up(steps / 10, 2e-3F).then(optim::cosine(steps, 2e-3F, 1e-5F));
      auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
      auto const adam  = optim::AdamW{.learning_rate = rate, .weight_decay = 0.05F, .global_clipnorm = 1};
      auto const rule  = optim::Grouped{adam, {plain("*bias"), plain("*gamma"), plain("*beta")}};
      auto trainer     = Trainer{nn::compile<VisionTransformer>(loss::SparseCrossEntropy{}, rule, metric::Accuracy{}),
                             strategy, RingAllReduce{}, LocalTransport{}, o.seed};

      trainer.fit(train.prefetch(2), {.epochs = o.epochs});
      example::print_test(trainer.evaluate(test));
    });
  });
}
