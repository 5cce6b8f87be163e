// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/drawn_pictures.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>

namespace chorale::data {
namespace detail {

/// Whether a point lies in shape number `label`, which is about a disc of radius 1 around 0.
inline bool in_shape(std::size_t label, float x, float y) {
  auto const radius = std::sqrt(x * x + y * y), ax = std::abs(x), ay = std::abs(y);
  auto const wide = std::max(ax, ay);
  switch (label) {
    case 0: return radius < 0.95F;                            // disc
    case 1: return radius < 1 && radius > 0.55F;              // ring
    case 2: return wide < 0.8F;                               // square
    case 3: return wide < 0.85F && wide > 0.45F;              // frame
    case 4: return y < 0.5F && 1.732F * ax - y < 1;           // triangle
    case 5: return wide < 0.95F && std::min(ax, ay) < 0.28F;  // cross
    case 6: return ax < 0.28F && ay < 1;                      // bar
    case 7: return radius < 1 && y > -0.1F;                   // half disc
    case 8: {                                                 // star of five points
      auto const turn = std::atan2(x, y) * 5 / (2 * std::numbers::pi_v<float>);
      return radius < 1 - 1.1F * std::abs(turn - std::round(turn));
    }
    default: return (ax - 0.6F) * (ax - 0.6F) + y * y < 0.15F;  // two dots
  }
}

}  // namespace detail

/// Pixels of one drawn shape, (32, 32, 3).
inline constexpr std::size_t shape_pixels = 32 * 32 * 3;

/// Draws picture number `index` of the endless sequence of a seed, and returns its label, 0 to 9: disc, ring, square,
/// frame, triangle, cross, bar, half disc, star, two dots.
///
/// pixels  (32, 32, 3), red, green and blue
/// order   the picture is a function of (seed, index)
inline std::uint8_t draw_shape(Seed seed, std::uint64_t index, std::span<std::uint8_t, shape_pixels> pixels) {
  using Colour       = std::array<float, 3>;
  constexpr int side = 32, parts = 2;                                            // samples of a pixel each way
  auto const random  = Random{seed, (std::uint64_t{0x73686170} << 32) ^ index};  // "shap"
  auto draws         = std::uint64_t{0};
  auto const between = [&](float from, float to) { return random.uniform(draws++, from, to); };
  auto const colour  = [&] { return Colour{between(0.1F, 0.9F), between(0.1F, 0.9F), between(0.1F, 0.9F)}; };

  auto const label  = static_cast<std::size_t>(random.below(draws++, 10));
  auto const radius = between(8.0F, 12.0F), room = 14.5F - radius;  // pixels
  auto const x0 = 15.5F + between(-room, room), y0 = 15.5F + between(-room, room);
  auto const angle = between(-0.4F, 0.4F), squeeze = between(0.85F, 1.15F);
  auto const c = std::cos(angle) / radius, s = std::sin(angle) / radius;

  auto const above = colour();  // of the background
  auto below       = colour();
  for (std::size_t k = 0; k < 3; ++k) below[k] = above[k] + 0.3F * (below[k] - above[k]);
  auto ink = colour();
  for (int i = 0; i < 16; ++i) {  // one that is seen on it
    auto apart = 0.0F;
    for (std::size_t k = 0; k < 3; ++k) apart += std::abs(ink[k] - 0.5F * (above[k] + below[k]));
    if (apart > 0.9F) break;
    ink = colour();
  }
  auto const stripes = between(0.0F, 0.06F), wave = between(0.0F, 6.28F);     // over the whole picture
  auto const along_x = between(-0.9F, 0.9F), along_y = between(-0.9F, 0.9F);  // radians per pixel
  auto const noise = between(0.02F, 0.08F);

  for (int row = 0; row < side; ++row)
    for (int column = 0; column < side; ++column) {
      auto inside    = 0.0F;
      auto const far = std::hypot(static_cast<float>(column) - x0, static_cast<float>(row) - y0) > 1.3F * radius + 1;
      for (int part = 0; part < parts * parts && !far; ++part) {
        auto const x = static_cast<float>(column) + static_cast<float>(part % parts) / parts - 0.25F - x0;
        auto const y = static_cast<float>(row) + static_cast<float>(part / parts) / parts - 0.25F - y0;
        inside += detail::in_shape(label, (c * x + s * y) * squeeze, (c * y - s * x) / squeeze) ? 0.25F : 0.0F;
      }
      auto const down   = static_cast<float>(row) / (side - 1);
      auto const phase  = along_x * static_cast<float>(column) + along_y * static_cast<float>(row) + wave;
      auto const stripe = stripes * std::sin(phase);
      auto const words  = random.words(draws++);
      for (std::size_t k = 0; k < 3; ++k) {
        auto const ground = above[k] + (below[k] - above[k]) * down;
        auto const grain  = static_cast<float>(words[k] >> 8) * 0x1p-23F - 1.0F;
        auto const shade  = ground + (ink[k] - ground) * inside + stripe + noise * grain;
        pixels[static_cast<std::size_t>(row * side + column) * 3 + k] =
            static_cast<std::uint8_t>(std::clamp(shade, 0.0F, 1.0F) * 255.0F + 0.5F);
      }
    }
  return static_cast<std::uint8_t>(label);
}

/// Coloured shapes, drawn as they are read: see data::shapes().
class Shapes : public DrawnPictures<Shapes, shape_pixels> {
 public:
  using DrawnPictures::DrawnPictures;

  static constexpr std::string_view name = "shapes";
  static std::uint8_t draw(Seed seed, std::uint64_t i, std::span<std::uint8_t, shape_pixels> pixels) {
    return draw_shape(seed, i, pixels);
  }
};

/// n drawn shapes in any colours and many sizes, places and angles, and their labels: pictures (32, 32, 3) of bytes and
/// labels 0 to 9, as in CIFAR-10.
///
///   auto train = data::shapes(20'000, 1);               // the same in every epoch and every process
///   auto test  = data::shapes(5'000, 1, 20'000);        // the next ones of the same sequence
///
/// first   index of the first picture; ranges that do not overlap share no picture
/// keeps   colours say nothing of the label: after 4,000 pictures a linear model gets 0.17 right, guessing 0.1
/// cost    some 100 µs for each picture and pass: put .cache() after it
inline Shapes shapes(std::size_t n, Seed seed, std::uint64_t first = 0) { return {n, seed, first}; }

}  // namespace chorale::data
