// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

/// Images in memory: (height, width, channels), row-major, bytes or floats. Files are in image_file.hpp.
///
///   auto const augment = [](auto const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
///     auto const in    = data::ImageView<std::uint8_t>{row.x, {32, 32, 3}};
///     auto const random = at.random(Seed{1});
///     auto part        = std::vector<std::uint8_t>{};
///     data::crop(in, data::random_box(in.shape, 28, 28, random), part);
///     data::normalise<std::uint8_t>({part, {28, 28, 3}}, mean, deviation, x);
///     y.assign(row.y.begin(), row.y.end());
///   };
///   auto rows = data::cifar10(folder, data::train).map(augment, {.threads = 4});
namespace chorale::data {

/// The dimensions of an image.
struct ImageShape {
  std::size_t height = 0, width = 0, channels = 0;

  constexpr std::size_t size() const { return height * width * channels; }
  friend constexpr bool operator==(ImageShape const&, ImageShape const&) = default;
};

/// A view of an image that is owned elsewhere.
template <class T> struct ImageView {
  Span<T const> pixels;  // (height, width, channels)
  ImageShape shape;
};

/// A part of an image, in pixels.
struct Box {
  std::size_t top = 0, left = 0, height = 0, width = 0;
};

namespace detail {

template <class T> void expect_image(ImageView<T> const& image, char const* who) {
  auto const& s = image.shape;
  CHORALE_EXPECTS(image.pixels.size() == s.size(),
                  std::string{who} + ": an image of " + std::to_string(s.height) + " x " + std::to_string(s.width) +
                      " x " + std::to_string(s.channels) + " has " + std::to_string(image.pixels.size()) + " numbers");
}

inline void expect_inside(ImageShape const& shape, Box const& box, std::string const& who) {
  auto const [height, width, channels] = shape;
  CHORALE_EXPECTS(
      box.height <= height && box.top <= height - box.height && box.width <= width && box.left <= width - box.width,
      who + ": " + std::to_string(box.height) + " x " + std::to_string(box.width) + " from row " +
          std::to_string(box.top) + ", column " + std::to_string(box.left) + " is not inside " +
          std::to_string(height) + " x " + std::to_string(width));
}

/// n pixels of red, green and blue as grey: 0.299 red + 0.587 green + 0.114 blue, rounded.
///
/// source  ITU-R BT.601, in the numbers of libjpeg and of PIL's convert("L")
inline void to_grey(std::uint8_t const* rgb, std::uint8_t* grey, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i, rgb += 3)
    grey[i] = static_cast<std::uint8_t>((19'595U * rgb[0] + 38'470U * rgb[1] + 7'471U * rgb[2] + 0x8000U) >> 16);
}

/// n pixels of cyan, magenta, yellow and black, each stored as 255 less, as red, green and blue.
///
/// source  Adobe's JPEG files; PIL's convert("RGB")
inline void to_rgb(std::uint8_t const* cmyk, std::uint8_t* rgb, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i, cmyk += 4, rgb += 3)
    for (std::size_t c = 0; c < 3; ++c) {
      auto const ink = (255U - cmyk[c]) * cmyk[3] + 128;
      rgb[c]         = static_cast<std::uint8_t>(cmyk[3] - (((ink >> 8) + ink) >> 8));
    }
}

}  // namespace detail

// The functions below resize `out`, which must not be the input.

/// Copies a part of an image.
///
/// out     (box.height, box.width, channels)
/// throws  BadArgument when the box is not inside
template <class T> void crop(ImageView<T> image, Box box, std::vector<T>& out) {
  detail::expect_image(image, "crop");
  detail::expect_inside(image.shape, box, "crop");
  auto const [height, width, channels] = image.shape;
  out.resize(box.height * box.width * channels);
  for (std::size_t row = 0; row < box.height; ++row)
    std::copy_n(image.pixels.begin() + static_cast<std::ptrdiff_t>(((box.top + row) * width + box.left) * channels),
                box.width * channels, out.begin() + static_cast<std::ptrdiff_t>(row * box.width * channels));
}

/// A box of this size in the middle of an image; towards the upper left if the middle is between pixels.
inline Box central_box(ImageShape const& shape, std::size_t height, std::size_t width) {
  CHORALE_EXPECTS(height <= shape.height && width <= shape.width, "central_box: larger than the image");
  return {(shape.height - height) / 2, (shape.width - width) / 2, height, width};
}

/// A box of this size anywhere in an image: a function of numbers 0 and 1 of `random`.
inline Box random_box(ImageShape const& shape, std::size_t height, std::size_t width, Random const& random) {
  CHORALE_EXPECTS(height <= shape.height && width <= shape.width, "random_box: larger than the image");
  return {static_cast<std::size_t>(random.below(0, shape.height - height + 1)),
          static_cast<std::size_t>(random.below(1, shape.width - width + 1)), height, width};
}

/// The pixels by which an image moves: negative numbers move it up, or to the left.
struct Shift {
  std::ptrdiff_t down = 0, right = 0;
};

/// A shift of at most `most` pixels each way: a function of numbers 0 and 1 of `random`.
inline Shift random_shift(std::size_t most, Random const& random) {
  auto const any = [&](std::uint64_t i) {
    return static_cast<std::ptrdiff_t>(random.below(i, 2 * most + 1)) - static_cast<std::ptrdiff_t>(most);
  };
  return {any(0), any(1)};
}

/// Moves the image inside its frame; pixels that come in are 0.
///
/// out     (height, width, channels)
/// source  Keras' RandomTranslation(fill_mode = "constant"), torchvision's RandomCrop(size, padding)
template <class T> void shift(ImageView<T> image, Shift by, std::vector<T>& out) {
  detail::expect_image(image, "shift");
  auto const height = static_cast<std::ptrdiff_t>(image.shape.height);
  auto const width  = static_cast<std::ptrdiff_t>(image.shape.width);
  auto const n      = static_cast<std::ptrdiff_t>(image.shape.channels);
  out.assign(image.pixels.size(), T{});
  if (by.right <= -width || by.right >= width || by.down <= -height || by.down >= height) return;
  auto const from = std::max<std::ptrdiff_t>(0, -by.right), columns = width - std::abs(by.right);
  for (auto row = std::max<std::ptrdiff_t>(0, -by.down); row < height && row + by.down < height; ++row)
    std::copy_n(image.pixels.begin() + (row * width + from) * n, columns * n,
                out.begin() + ((row + by.down) * width + from + by.right) * n);
}

/// Mirrors the image left to right: the first column becomes the last.
template <class T> void flip_left_right(ImageView<T> image, std::vector<T>& out) {
  detail::expect_image(image, "flip_left_right");
  auto const [height, width, channels] = image.shape;
  out.resize(image.pixels.size());
  for (std::size_t row = 0; row < height; ++row)
    for (std::size_t column = 0; column < width; ++column)
      for (std::size_t c = 0; c < channels; ++c)
        out[(row * width + column) * channels + c] = image.pixels[(row * width + width - 1 - column) * channels + c];
}

/// Mirrors the image top to bottom: the first row becomes the last.
template <class T> void flip_up_down(ImageView<T> image, std::vector<T>& out) {
  detail::expect_image(image, "flip_up_down");
  auto const [height, width, channels] = image.shape;
  out.resize(image.pixels.size());
  for (std::size_t row = 0; row < height; ++row)
    std::copy_n(image.pixels.begin() + static_cast<std::ptrdiff_t>((height - 1 - row) * width * channels),
                width * channels, out.begin() + static_cast<std::ptrdiff_t>(row * width * channels));
}

/// Scales the image to another height and width: each new pixel is a weighted mean of the four around it.
///
/// out     (height, width, channels); bytes are rounded to the nearest
/// keeps   pixels are sampled at their centres, edges repeat; no filter against aliasing when the image shrinks
/// source  tf.image.resize(antialias = False), torch's interpolate(mode = "bilinear", align_corners = False)
template <class T, class Out>
void resize(ImageView<T> image, std::size_t height, std::size_t width, std::vector<Out>& out) {
  detail::expect_image(image, "resize");
  auto const from = image.shape;
  CHORALE_EXPECTS(from.size() > 0 && height > 0 && width > 0, "resize: an image without pixels");
  struct Between {
    std::size_t low, high;
    float weight;  // of high
  };
  auto const between = [](std::size_t i, std::size_t n, std::size_t old) {
    auto const ratio = static_cast<float>(old) / static_cast<float>(n);
    auto const at    = std::max(0.0F, (static_cast<float>(i) + 0.5F) * ratio - 0.5F);
    auto const low   = std::min(static_cast<std::size_t>(at), old - 1);
    return Between{low, std::min(low + 1, old - 1), at - static_cast<float>(low)};
  };
  auto columns = std::vector<Between>(width);
  for (std::size_t column = 0; column < width; ++column) columns[column] = between(column, width, from.width);
  out.resize(height * width * from.channels);
  auto to = out.begin();
  for (std::size_t row = 0; row < height; ++row) {
    auto const r      = between(row, height, from.height);
    auto const* above = image.pixels.data() + r.low * from.width * from.channels;
    auto const* below = image.pixels.data() + r.high * from.width * from.channels;
    for (auto const& c : columns)
      for (std::size_t k = 0; k < from.channels; ++k) {
        auto const mix = [&](T const* line) {
          auto const a = static_cast<float>(line[c.low * from.channels + k]);
          auto const b = static_cast<float>(line[c.high * from.channels + k]);
          return a + (b - a) * c.weight;
        };
        auto const up = mix(above), value = up + (mix(below) - up) * r.weight;
        if constexpr (std::integral<Out>) *to++ = static_cast<Out>(std::lround(value));
        else *to++ = static_cast<Out>(value);
      }
  }
}

/// Normalises each channel to mean 0 and deviation 1 if it has the given ones: (pixel - mean) / deviation.
///
/// mean, deviation    one number for each channel, in the unit of the pixels
template <class T>
void normalise(ImageView<T> image, std::type_identity_t<Span<float const>> mean,
               std::type_identity_t<Span<float const>> deviation, std::vector<float>& out) {
  detail::expect_image(image, "normalise");
  auto const channels = image.shape.channels;
  CHORALE_EXPECTS(mean.size() == channels && deviation.size() == channels,
                  "normalise: " + std::to_string(mean.size()) + " means and " + std::to_string(deviation.size()) +
                      " deviations for " + std::to_string(channels) + " channels");
  CHORALE_EXPECTS(std::none_of(deviation.begin(), deviation.end(), [](float d) { return d == 0; }),
                  "normalise: a deviation of 0");
  out.resize(image.pixels.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = (static_cast<float>(image.pixels[i]) - mean[i % channels]) / deviation[i % channels];
}

/// A flip that rescale does as well: `columns` flips left and right.
enum class Mirror { none, columns };

/// Computes pixel · factor + offset: (1.0F / 255) for 0 to 1, (2.0F / 255, -1) for -1 to 1.
template <class T>
void rescale(ImageView<T> image, float factor, float offset, std::vector<float>& out, Mirror mirror = Mirror::none) {
  detail::expect_image(image, "rescale");
  out.resize(image.pixels.size());
  auto const scaled = [=](T pixel) { return static_cast<float>(pixel) * factor + offset; };
  if (mirror == Mirror::none) {
    std::transform(image.pixels.begin(), image.pixels.end(), out.begin(), scaled);
    return;
  }
  auto const turn = [&](auto n) {  // n: a constant unrolls one loop
    auto const width = image.shape.width;
    for (std::size_t row = 0; row < image.shape.height; ++row)
      for (std::size_t column = 0; column < width; ++column)
        for (std::size_t c = 0; c < n; ++c)
          out[((row + 1) * width - 1 - column) * n + c] = scaled(image.pixels[(row * width + column) * n + c]);
  };
  if (image.shape.channels == 3) turn(std::integral_constant<std::size_t, 3>{});
  else turn(image.shape.channels);
}

}  // namespace chorale::data
