// SPDX-License-Identifier: Apache-2.0
//
// A GAN of pictures: transposed convolutions make digits of noise, convolutions tell them from drawn ones. The loop is
// that of 12_gan, on one replica per core; what the generator learns from is the gradient by the pictures that it made.
//
//   tools/run 23_digit_gan
//
// Expect the mean and the deviation of all pixels that are made to come near those of the drawn digits, and in the end
// two pictures of each kind.
#include <chorale/chorale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace chorale;

struct Noise : Field<float, 16> {};
struct Image : Field<float, 28, 28, 1> {};  // 0 is paper, 1 is ink
struct IsReal : Field<float, 1> {};

struct Generator : nn::Graph<Noise> {
  nn::Dense<7 * 7 * 32> in;
  nn::Conv2DTranspose<16, 4, nn::Same, nn::Stride<2>> wider;  // (B, 14, 14, 16)
  nn::Conv2DTranspose<1, 4, nn::Same, nn::Stride<2>> image;   // (B, 28, 28, 1)

  constexpr auto operator()(auto noise) const {
    auto const x = nn::reshape<7, 7, 32>(nn::LeakyReLU<20>{}(in(noise)));
    return nn::outputs<Image>(nn::sigmoid(image(nn::LeakyReLU<20>{}(wider(x)))));
  }
};
struct Critic : nn::Graph<nn::Differentiable<Image, nn::OnRequest>> {
  nn::Block<nn::Conv2D<16, 4, nn::Same, nn::Stride<2>>, nn::LeakyReLU<20>,  // (B, 14, 14, 16)
            nn::Conv2D<32, 4, nn::Same, nn::Stride<2>>, nn::LeakyReLU<20>,  // (B, 7, 7, 32)
            nn::Flatten, nn::Dense<1>>
      layers;

  constexpr auto operator()(auto image) const { return nn::outputs<IsReal>(layers(image)); }
};

/// Mean and deviation of the pixels of a batch.
struct Ink {
  double mean = 0, deviation = 0;
};
Ink ink_of(Span<float const> all) {
  auto sum = 0.0, squares = 0.0;
  for (auto const x : all) sum += x, squares += static_cast<double>(x * x);
  auto const n = static_cast<double>(all.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n)};
}

void print(Span<float const> image) {  // every other line: letters are tall
  for (std::size_t i = 0; i < 784; i += i % 28 == 27 ? 29 : 1)
    std::printf(i % 28 == 27 ? "%c\n" : "%c", " .:-=+*#%@"[static_cast<std::size_t>(image[i] * 9.99F)]);
}

/// Batches of n digits from number `first` on, and of noise.
auto digits(std::size_t n, std::uint64_t first, int rows) {
  return data::digits(n, 1, first)
      .map(data::scale)
      .map<Noise, Image>([](auto const& row, auto& to, data::Place at) {
        auto const draw = at.random(Seed{9});
        to[Image{}].assign(row.x.begin(), row.x.end());
        to[Noise{}].clear();
        for (std::uint64_t i = 0; i < 16; ++i) to[Noise{}].push_back(draw.normal(i));
      })
      .cache()
      .shuffle(n)
      .batch(rows);
}

int main() try {
  constexpr int epochs = 10, batches = 32;  // of 64 rows
  auto const rule = optim::Adam{.learning_rate = optim::cosine(epochs * batches, 1e-3F, 5e-5F), .beta_1 = 0.5F};
  auto strategy   = Live{MirroredStrategy{Cpu::split(Cpu{}.threads())}, RingAllReduce{}, LocalTransport{}};
  auto generators = strategy.create(nn::compile<Generator>(loss::Given{}, rule), 1);
  auto critics    = strategy.create(nn::compile<Critic>(loss::BinaryCrossEntropy{}, rule), 2);

  auto const step = [&](auto& replica, auto& generator, auto& critic, Rows<Noise, Image> const& batch) {
    auto const learn = [&](auto& model, auto const& batch_of_model) {
      auto [loss, gradients] = replica.value_and_gradient(model, batch_of_model);
      strategy.update(replica, model, gradients);
    };
    auto const fakes = generator.outputs(batch);  // (B, 28, 28, 1), until it computes again
    auto images      = std::vector<float>(batch[Image{}].begin(), batch[Image{}].end());  // (2 B, ..): real, made
    auto is_real     = std::vector<float>(batch.rows, 1.0F);                              // (2 B, 1)
    images.insert(images.end(), fakes.begin(), fakes.end());
    is_real.resize(2 * batch.rows, 0.0F);
    learn(critic, Rows<Image, IsReal>{images, is_real});
    auto const ones = std::vector<float>(batch.rows, 1.0F);  // as if they were real
    learn(generator, Rows<Image>{critic.gradient_by(Image{}, Rows<Image, IsReal>{fakes, ones})});
  };

  auto const train = digits(64 * batches, 0, 64), unseen = digits(512, 64 * batches, 512);
  auto stream = unseen.stream(0);
  auto look   = Rows<Noise, Image>{};
  stream.next(look);
  auto const drawn = ink_of(look[Image{}]);
  auto ends        = Ink{};  // of the last three epochs
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    for (auto& batch : strategy.distribute(train, epoch)) strategy.run(step, generators, critics, batch);
    auto const made = ink_of(generators[0].predict(look));
    std::printf("epoch %2d: mean %.3f (drawn %.3f), deviation %.3f (%.3f)\n", epoch, made.mean, drawn.mean,
                made.deviation, drawn.deviation);
    if (epoch > epochs - 3) ends = {ends.mean + made.mean / 3, ends.deviation + made.deviation / 3};
  }
  for (std::size_t i = 0; i < 2; ++i) {
    print(look[Image{}].subspan(i * 784, 784));
    print(generators[0].predict(look).subspan(i * 784, 784));
  }
  auto const equal = generators[0].hash() == generators[generators.size() - 1].hash();
  auto const apart = [](double a, double b) { return std::abs(a - b) / b; };
  return equal && apart(ends.mean, drawn.mean) < 0.2 && apart(ends.deviation, drawn.deviation) < 0.1 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
