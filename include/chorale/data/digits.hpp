// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/drawn_pictures.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chorale::data {
namespace detail {

struct Point {
  float x, y;
};
/// A quadratic Bézier curve; a straight line has its middle as the second point.
struct Curve {
  Point a, b, c;
};
constexpr Curve line(Point a, Point c) { return {a, {(a.x + c.x) / 2, (a.y + c.y) / 2}, c}; }
constexpr Curve turned(Curve s) { return {{-s.a.x, -s.a.y}, {-s.b.x, -s.b.y}, {-s.c.x, -s.c.y}}; }

/// The strokes of each digit, x to the right and y down, about within [-0.6, 0.6] × [-1, 1].
inline constexpr auto digit_strokes = [] {
  auto all = std::array<std::array<Curve, 8>, 10>{};
  all[0]   = {{{{0, -1}, {.6F, -1}, {.6F, 0}},
               {{.6F, 0}, {.6F, 1}, {0, 1}},
               {{0, 1}, {-.6F, 1}, {-.6F, 0}},
               {{-.6F, 0}, {-.6F, -1}, {0, -1}}}};
  all[1]   = {{{{-.35F, -.6F}, {-.1F, -.75F}, {.05F, -1}}, line({.05F, -1}, {.05F, 1})}};
  all[2]   = {{{{-.55F, -.55F}, {-.5F, -1}, {0, -1}},
               {{0, -1}, {.6F, -1}, {.55F, -.45F}},
               {{.55F, -.45F}, {.45F, .1F}, {-.55F, 1}},
               line({-.55F, 1}, {.6F, 1})}};
  all[3]   = {{{{-.5F, -.8F}, {-.2F, -1}, {0, -1}},
               {{0, -1}, {.55F, -1}, {.5F, -.5F}},
               {{.5F, -.5F}, {.45F, -.05F}, {-.1F, -.05F}},
               {{-.1F, -.05F}, {.6F, 0}, {.6F, .5F}},
               {{.6F, .5F}, {.55F, 1}, {0, 1}},
               {{0, 1}, {-.35F, 1}, {-.55F, .7F}}}};
  all[4]   = {{line({.25F, -1}, {-.6F, .35F}), line({-.6F, .35F}, {.6F, .35F}), line({.25F, -1}, {.25F, 1})}};
  all[5]   = {{line({.5F, -1}, {-.4F, -1}),
               line({-.4F, -1}, {-.5F, -.1F}),
               {{-.5F, -.1F}, {-.2F, -.3F}, {.05F, -.3F}},
               {{.05F, -.3F}, {.6F, -.3F}, {.6F, .35F}},
               {{.6F, .35F}, {.6F, 1}, {0, 1}},
               {{0, 1}, {-.4F, 1}, {-.55F, .7F}}}};
  all[6]   = {{{{.4F, -.95F}, {-.5F, -.8F}, {-.55F, .35F}},
               {{-.55F, .35F}, {-.55F, 1}, {0, 1}},
               {{0, 1}, {.55F, 1}, {.55F, .4F}},
               {{.55F, .4F}, {.5F, -.1F}, {0, -.1F}},
               {{0, -.1F}, {-.5F, -.1F}, {-.55F, .35F}}}};
  all[7]   = {{line({-.55F, -1}, {.6F, -1}), {{.6F, -1}, {0, 0}, {-.15F, 1}}}};
  all[8]   = {{{{0, -1}, {.5F, -1}, {.45F, -.5F}},
               {{.45F, -.5F}, {.4F, -.05F}, {0, -.05F}},
               {{0, -.05F}, {-.4F, -.05F}, {-.45F, -.5F}},
               {{-.45F, -.5F}, {-.5F, -1}, {0, -1}},
               {{0, -.05F}, {.6F, 0}, {.58F, .5F}},
               {{.58F, .5F}, {.55F, 1}, {0, 1}},
               {{0, 1}, {-.55F, 1}, {-.58F, .5F}},
               {{-.58F, .5F}, {-.6F, 0}, {0, -.05F}}}};
  for (std::size_t i = 0; i < 5; ++i) all[9][i] = turned(all[6][i]);
  return all;
}();
inline constexpr auto digit_stroke_counts = std::array<std::size_t, 10>{4, 2, 4, 6, 3, 6, 5, 2, 8, 5};

/// A 28 × 28 sheet on which a round pen draws.
class Sheet {
 public:
  static constexpr int side = 28;

  /// Darkens the pixels within `radius` of the segment; edges are soft over one pixel.
  void draw(Point a, Point b, float radius, float ink) {
    auto const reach = radius + 0.5F;
    auto const first = [&](float p, float q) {
      return std::max(0, static_cast<int>(std::ceil(std::min(p, q) - reach)));
    };
    auto const last = [&](float p, float q) {
      return std::min(side - 1, static_cast<int>(std::floor(std::max(p, q) + reach)));
    };
    auto const dx = b.x - a.x, dy = b.y - a.y;
    auto const scale = 1.0F / std::max(dx * dx + dy * dy, 1e-6F);
    for (int row = first(a.y, b.y); row <= last(a.y, b.y); ++row)
      for (int column = first(a.x, b.x); column <= last(a.x, b.x); ++column) {
        auto const px = static_cast<float>(column) - a.x, py = static_cast<float>(row) - a.y;
        auto const t  = std::clamp((px * dx + py * dy) * scale, 0.0F, 1.0F);  // nearest point of the segment
        auto const ex = px - t * dx, ey = py - t * dy;
        auto& shade = shades_[static_cast<std::size_t>(row * side + column)];
        shade       = std::max(shade, ink * std::clamp(reach - std::sqrt(ex * ex + ey * ey), 0.0F, 1.0F));
      }
  }
  std::array<float, side * side> const& shades() const { return shades_; }

 private:
  std::array<float, side * side> shades_{};  // (28, 28), 0 is paper, 1 is ink
};

}  // namespace detail

/// Pixels of one drawn digit, (28, 28, 1).
inline constexpr std::size_t digit_pixels = 28 * 28;

/// Draws digit number `index` of the endless sequence of a seed, and returns its label, 0 to 9.
///
/// pixels  (28, 28, 1), 0 is paper, 255 is ink
/// order   the image is a function of (seed, index)
inline std::uint8_t draw_digit(Seed seed, std::uint64_t index, std::span<std::uint8_t, digit_pixels> pixels) {
  using detail::Point;
  auto const random  = Random{seed, (std::uint64_t{0x64696769} << 32) ^ index};  // "digi"
  auto draws         = std::uint64_t{0};
  auto const between = [&](float from, float to) { return random.uniform(draws++, from, to); };

  auto const label = static_cast<std::size_t>(random.below(draws++, 10));
  auto const angle = between(-0.35F, 0.35F), slant = between(-0.3F, 0.3F);  // radians; x per y
  auto const wide = between(6.5F, 10.0F), tall = between(6.5F, 10.0F);      // pixels per unit
  auto const middle = Point{13.5F + between(-2.0F, 2.0F), 13.5F + between(-2.0F, 2.0F)};
  auto const bend_x = between(-0.14F, 0.14F), bend_y = between(-0.14F, 0.14F);  // a slow wave, so no two
  auto const wave_x = between(0.0F, 6.28F), wave_y = between(0.0F, 6.28F);      // have the same curves
  auto const pen = between(0.5F, 1.6F), ink = between(0.65F, 1.0F);
  auto const c = std::cos(angle), s = std::sin(angle);
  auto const place = [&](Point p) {
    auto const x = (p.x + bend_x * std::sin(2.5F * p.y + wave_x) + slant * p.y) * wide;
    auto const y = (p.y + bend_y * std::sin(2.5F * p.x + wave_y)) * tall;
    return Point{middle.x + c * x - s * y, middle.y + s * x + c * y};
  };

  auto sheet = detail::Sheet{};
  for (std::size_t i = 0; i < detail::digit_stroke_counts[label]; ++i) {
    auto const& stroke   = detail::digit_strokes[label][i];
    constexpr int pieces = 5;
    auto before          = place(stroke.a);
    for (int k = 1; k <= pieces; ++k) {
      auto const t = static_cast<float>(k) / pieces, u = 1 - t;
      auto const at = place({u * u * stroke.a.x + 2 * u * t * stroke.b.x + t * t * stroke.c.x,
                             u * u * stroke.a.y + 2 * u * t * stroke.b.y + t * t * stroke.c.y});
      sheet.draw(before, at, pen, ink);
      before = at;
    }
  }
  for (auto specks = random.below(draws++, 4); specks > 0; --specks) {  // up to three stray marks
    auto const from = Point{between(0.0F, 27.0F), between(0.0F, 27.0F)};
    auto const to   = Point{from.x + between(-3.0F, 3.0F), from.y + between(-3.0F, 3.0F)};
    sheet.draw(from, to, 0.6F, ink);
  }

  auto const noise = between(10.0F, 50.0F) / 255.0F;   // of full scale, either way
  for (std::size_t i = 0; i < digit_pixels; i += 8) {  // eight 16-bit numbers each
    auto const words = random.words(draws++);
    for (std::size_t k = 0; k < 8; ++k) {
      auto const grain = static_cast<float>(words[k / 2] >> (k % 2 * 16) & 0xFFFF) / 32768.0F - 1.0F;
      auto const shade = std::clamp(sheet.shades()[i + k] + noise * grain, 0.0F, 1.0F);
      pixels[i + k]    = static_cast<std::uint8_t>(shade * 255.0F + 0.5F);
    }
  }
  return static_cast<std::uint8_t>(label);
}

/// Digits of pen strokes, drawn as they are read: see data::digits().
class Digits : public DrawnPictures<Digits, digit_pixels> {
 public:
  using DrawnPictures::DrawnPictures;

  static constexpr std::string_view name = "digits";
  static std::uint8_t draw(Seed seed, std::uint64_t i, std::span<std::uint8_t, digit_pixels> pixels) {
    return draw_digit(seed, i, pixels);
  }
};

/// n drawn digits and their labels, so that a first run needs no download: images (28, 28, 1) of bytes, labels 0 to 9.
///
///   auto train = data::digits(20'000, 1);               // the same in every epoch and every process
///   auto test  = data::digits(5'000, 1, 20'000);        // the next ones of the same sequence
///
/// first   index of the first digit; ranges that do not overlap share no image
/// keeps   hard enough for a convolution to be worth it: a linear model gets about nine of ten right
/// cost    some 15 µs for each digit and pass: put .cache() after it
inline Digits digits(std::size_t n, Seed seed, std::uint64_t first = 0) { return {n, seed, first}; }

}  // namespace chorale::data
