// SPDX-License-Identifier: Apache-2.0
//
// A GAN of convolutions and transposed convolutions against the numbers of PyTorch. README.md beside this file has the
// tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace conv_gan_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 3, pixels = 12 * 12;

struct Noise : Field<float, 3> {};
struct Image : Field<float, 12, 12, 1> {};
struct IsReal : Field<float, 1> {};

struct Generator : nn::Graph<Noise> {
  nn::Dense<3 * 3 * 4> in;
  nn::Conv2DTranspose<3, 4, nn::Same, nn::Stride<2>> wider;  // (B, 6, 6, 3)
  nn::Conv2DTranspose<1, 4, nn::Same, nn::Stride<2>> image;  // (B, 12, 12, 1)

  constexpr auto operator()(auto noise) const {
    auto const x = nn::reshape<3, 3, 4>(nn::LeakyReLU<20>{}(in(noise)));
    return nn::outputs<Image>(nn::tanh(image(nn::LeakyReLU<20>{}(wider(x)))));
  }
};
struct Discriminator : nn::Graph<nn::Differentiable<Image>> {
  nn::Block<nn::Conv2D<4, 4, nn::Same, nn::Stride<2>>, nn::LeakyReLU<20>,  // (B, 6, 6, 4)
            nn::Conv2D<5, 4, nn::Same, nn::Stride<2>>, nn::LeakyReLU<20>,  // (B, 3, 3, 5)
            nn::Flatten, nn::Dense<1>>
      layers;

  constexpr auto operator()(auto image) const { return nn::outputs<IsReal>(layers(image)); }
};

std::vector<float> around_zero(std::size_t n, std::uint32_t salt, float scale) {
  return golden::initial({"", n, salt, scale});
}

double largest_difference(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto most = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, static_cast<double>(std::abs(got[i] - want[i])));
  return most;
}

}  // namespace

TEST_CASE("steps of a GAN of transposed convolutions are PyTorch's", "[golden][nn][graph]") {
  auto const expected = SafetensorsFile::read("test/golden/conv_gan.safetensors");
  auto const rule     = optim::Adam{.learning_rate = 0.02F, .beta_1 = 0.5F, .epsilon = 1e-7F};
  auto const device   = Cpu::logical(1)[0];
  auto generator      = nn::compile<Generator>(loss::Given{}, rule).instantiate(device, 1);
  auto discriminator  = nn::compile<Discriminator>(loss::BinaryCrossEntropy{}, rule).instantiate(device, 1);
  auto const set      = [](auto& model, std::uint32_t salt) {
    auto const v = model.net.variables();
    REQUIRE(v.size() == 6);
    for (std::size_t i = 0; i < v.size(); ++i)
      std::ranges::copy(around_zero(v[i].value.size(), salt + 0x11 * static_cast<std::uint32_t>(i), 1),
                             v[i].value.begin());
  };
  set(generator, 0x100), set(discriminator, 0x200);
  auto const check = [&](std::string const& which, auto& model) {
    for (std::size_t i = 0; i < 6; ++i) {
      auto const name = which + "/" + std::string{model.net.variables()[i].name};
      INFO(name);
      auto const sums = model.gradients()[i];
      auto means      = std::vector<float>(sums.begin(), sums.end());
      for (auto& g : means) g /= model.gradients().rows();
      CHECK(largest_difference(means, expected.floats(name)) < 2.5e-6);
    }
  };
  auto const losses = expected.floats("losses");
  REQUIRE(losses.size() == 4);
  auto const ones = std::vector<float>(rows, 1.0F);
  auto is_real    = ones;
  is_real.resize(2 * rows, 0.0F);
  auto noise = std::vector<float>{};
  for (std::uint32_t step = 0; step < 2; ++step) {
    noise            = around_zero(rows * 3, 0x1000 + step, 4);
    auto images      = around_zero(rows * pixels, 0x2000 + step, 2);
    auto const made  = generator.predict(Rows<Noise>{noise});
    auto const fakes = std::vector<float>(made.begin(), made.end());
    images.insert(images.end(), fakes.begin(), fakes.end());
    auto const of_both = discriminator.value_and_gradient(Rows<Image, IsReal>{images, is_real}, 0, LooksAtEnd{});
    CHECK(std::abs(of_both.value / (2 * rows) - losses[2 * step]) < 2e-6F);
    if (step == 0) check("discriminator", discriminator);
    discriminator.optimizer.apply(discriminator.net.variables(), discriminator.gradients());
    auto const fooled = discriminator.value_and_gradient(Rows<Image, IsReal>{fakes, ones}, 0, LooksAtEnd{});
    CHECK(std::abs(fooled.value / rows - losses[2 * step + 1]) < 2e-6F);
    generator.value_and_gradient(Rows<Noise, Image>{noise, discriminator.gradient_by(Image{})}, 0, LooksAtEnd{});
    if (step == 0) check("generator", generator);
    generator.optimizer.apply(generator.net.variables(), generator.gradients());
  }
  CHECK(largest_difference(generator.predict(Rows<Noise>{noise}), expected.floats("made")) < 5e-6);
}

}  // namespace conv_gan_test
