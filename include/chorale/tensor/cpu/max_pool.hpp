// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace chorale::cpu {

/// Max pooling, forward and backward: loops of this library, eight channels at a time.
///
/// On CPUs without AVX-512, oneDNN's max pool for training takes seven to ten times as long as its mean pool of the
/// same images: two thirds of a step of a small network (docs/80-decisions.md).
///
///   x         (image, block, row, column, lane): all channels side by side, or in blocks of 8 or 16 lanes
///   winners   as y, a byte each: which pixel of its window, row by row, was the largest; of equals the first
class MaxPool {
 public:
  /// x, y      in the same order. Returns nothing when channels are not side by side in eights, or a window has 256
  ///           pixels or more
  static std::optional<MaxPool> of(onednn::desc const& x, onednn::desc const& y, Window const& window) {
    auto const in = order_of(x), out = order_of(y);
    if (in.lanes % wide != 0 || in.lanes != out.lanes || window.kernel > most) return {};
    return MaxPool{in, out, window, y.get_size() / sizeof(float)};
  }

  std::size_t winners() const { return winners_; }  // bytes

  void forward(float const* x, float* y, std::uint8_t* winners) const {
    each_window([&](Index from, Index to, Pixels pixels) {
      for (Index lane = 0; lane < in_.lanes; lane += wide) {
        auto best = Floats{}, value = Floats{};
        auto which = Ints{} + pixels[0].number;
        std::memcpy(&best, x + (from + pixels[0].offset + lane), sizeof best);
        for (auto const& pixel : pixels.subspan(1)) {
          std::memcpy(&value, x + (from + pixel.offset + lane), sizeof value);
          auto const larger = value > best;
          best              = larger ? value : best;
          which             = larger ? Ints{} + pixel.number : which;
        }
        auto const bytes = __builtin_convertvector(which, Bytes);
        std::memcpy(y + to + lane, &best, sizeof best);
        std::memcpy(winners + to + lane, &bytes, sizeof bytes);
      }
    });
  }

  /// dx    all of it is written
  void backward(float const* dy, std::uint8_t const* winners, float* dx) const {
    auto const apart = window_.stride >= window_.kernel;  // no pixel is in two windows
    if (!is_tiled()) std::fill_n(dx, in_.image * in_.images, 0.0F);
    each_window([&](Index from, Index to, Pixels pixels) {
      for (Index lane = 0; lane < in_.lanes; lane += wide) {
        auto bytes = Bytes{};
        auto value = Floats{}, before = Floats{};
        std::memcpy(&bytes, winners + to + lane, sizeof bytes);
        std::memcpy(&value, dy + to + lane, sizeof value);
        auto const which = __builtin_convertvector(bytes, Ints);
        for (auto const& pixel : pixels) {
          auto* const at = dx + (from + pixel.offset + lane);
          if (!apart) std::memcpy(&before, at, sizeof before);
          Floats const sum = before + (which == Ints{} + pixel.number ? value : Floats{});
          std::memcpy(at, &sum, sizeof sum);
        }
      }
    });
  }

 private:
  static constexpr int wide = 8, most = 15;
  using Index  = std::ptrdiff_t;
  using Floats = float __attribute__((vector_size(4 * wide)));
  using Ints   = std::int32_t __attribute__((vector_size(4 * wide)));
  using Bytes  = std::uint8_t __attribute__((vector_size(wide)));

  struct Order {
    Index images, blocks, lanes;
    Index image, block, row, column;  // elements from one to the next
  };
  struct Pixel {
    Index offset;  // from the window's corner
    std::int32_t number;
  };
  using Pixels = Span<Pixel const>;

  MaxPool(Order const& in, Order const& out, Window const& window, std::size_t winners)
      : in_{in}, out_{out}, window_{window}, winners_{winners} {}

  static Order order_of(onednn::desc const& layout) {
    auto const of       = onednn::blocking_of(layout);
    auto const& strides = of.strides;  // of image, block of channels, row, column
    auto const lanes    = of.plain && strides[1] == 1 ? of.sizes[1] : of.channels;
    return {of.sizes[0], of.padded[1] / lanes, lanes, strides[0], strides[1], strides[2], strides[3]};
  }

  /// True if every pixel of x is in exactly one window.
  bool is_tiled() const {
    auto const& w = window_;
    return w.kernel == w.stride && w.pad_before == 0 && w.pad_left == 0 && w.height == w.out_height() * w.kernel &&
           w.width == w.out_width() * w.kernel;
  }

  /// Writes the pixels of the window with that corner, without padding.
  ///
  /// returns   their number
  std::size_t pixels_at(Index top, Index left, std::array<Pixel, most * most>& pixels) const {
    auto n = std::size_t{0};
    for (Index h = std::max<Index>(0, -top); h < std::min<Index>(window_.kernel, window_.height - top); ++h)
      for (Index v = std::max<Index>(0, -left); v < std::min<Index>(window_.kernel, window_.width - left); ++v)
        pixels[n++] = {h * in_.row + v * in_.column, static_cast<std::int32_t>(h * window_.kernel + v)};
    return n;
  }

  /// Calls f(element of x at the window's corner, which may be in the padding; element of y; pixels of the window).
  template <class F> void each_window(F f) const {
    Cpu::each(in_.images * in_.blocks, [&](Index unit) {
      auto const image = unit / in_.blocks, block = unit % in_.blocks;
      auto pixels = std::array<Pixel, most * most>{};
      auto n      = std::size_t{0};
      bool inner  = false;  // the n pixels hold for any inner window
      for (Index h = 0; h < window_.out_height(); ++h)
        for (Index v = 0; v < window_.out_width(); ++v) {
          auto const top = h * window_.stride - window_.pad_before, left = v * window_.stride - window_.pad_left;
          auto const cut =
              top < 0 || left < 0 || top + window_.kernel > window_.height || left + window_.kernel > window_.width;
          if (cut || !inner) n = pixels_at(top, left, pixels);
          inner = !cut;
          f(image * in_.image + block * in_.block + top * in_.row + left * in_.column,
            image * out_.image + block * out_.block + h * out_.row + v * out_.column, Pixels{pixels.data(), n});
        }
    });
  }

  Order in_, out_;
  Window window_;
  std::size_t winners_;
};

}  // namespace chorale::cpu
