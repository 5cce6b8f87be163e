// SPDX-License-Identifier: Apache-2.0
//
// A 3 x 3 convolution of images with one channel and the 2 x 2 pool after it, in one pass over x and y. Not inline:
// all.cuh is included once in a program.
#pragma once

#include <chorale/tensor/cuda/element_types.cuh>
#include <chorale/tensor/cuda/launch.cuh>
#include <chorale/tensor/cuda/launch.hpp>

#include <cstddef>

namespace chorale::cuda::launch {

namespace detail {

/// The 4 x 4 pixels of x that one pixel of y depends on, in registers. It moves along a row of y: pixels that two
/// neighbours share are read once, and a warp, which has 32 filters of one pixel, reads one address.
template <class T> class Patch {
 public:
  /// image   (H, W)
  /// row     of y
  __device__ Patch(Window const& w, T const* image, int row)
      : image_{image}, height_{w.height}, width_{w.width}, top_{2 * row - w.pad_before}, left_{-w.pad_left - 4} {
    move();  // the next move() is to the first pixel
  }

  /// Moves to the next pixel of y.
  __device__ void move() {
    left_ += 2;
    for (int r = 0; r < 4; ++r) {
      pixels_[r][0] = pixels_[r][2];
      pixels_[r][1] = pixels_[r][3];
      pixels_[r][2] = pixel(top_ + r, left_ + 2);
      pixels_[r][3] = pixel(top_ + r, left_ + 3);
    }
  }
  /// The pixel of x that (i, j) of the kernel is multiplied with, for pixel (r, c) of the pool's window.
  __device__ float at(int r, int c, int i, int j) const { return pixels_[r + i][c + j]; }

 private:
  __device__ float pixel(int row, int column) const {
    auto const there = row >= 0 && row < height_ && column >= 0 && column < width_;
    return there ? static_cast<float>(image_[row * width_ + column]) : 0;
  }

  T const* image_;
  int height_, width_, top_, left_;
  float pixels_[4][4]{};
};

/// The work of one thread: a row of y and a filter.
struct Strip {
  std::size_t image, begin;  // begin: of y, and of winners
  int row;

  __device__ Strip(ConvPool const& of, std::size_t strip, std::size_t filter) {
    auto const place = Divided{strip, static_cast<std::size_t>(of.pool.out_height())};
    image = place.quotient, row = static_cast<int>(place.rest);
    begin = strip * static_cast<std::size_t>(of.pool.out_width() * of.filters) + filter;
  }
};

template <class T>
cudaError_t conv_pool(ConvPool const& of, std::size_t images, T const* x, float const* kernel, float const* bias, T* y,
                      unsigned char* winners, int relu, cudaStream_t queue) {
  auto const filters = static_cast<std::size_t>(of.filters);
  auto const pixels  = static_cast<std::size_t>(of.conv.height * of.conv.width);
  auto const width   = of.pool.out_width();
  return each(of.strips(images) * filters, queue, [=] __device__(std::size_t i) {
    auto const place  = Divided{i, filters};
    auto const filter = place.rest;
    auto const strip  = Strip{of, place.quotient, filter};
    auto const shift  = bias == nullptr ? 0 : bias[filter];
    float weights[9];
    for (int k = 0; k < 9; ++k) weights[k] = kernel[k * filters + filter];
    auto patch = Patch<T>{of.conv, x + strip.image * pixels, strip.row};
    auto at    = strip.begin;
    for (int column = 0; column < width; ++column, at += filters) {
      patch.move();
      auto top    = 0.0F;
      auto winner = 0;
      for (int p = 0; p < 4; ++p) {
        auto value = shift;
        for (int k = 0; k < 9; ++k) value += weights[k] * patch.at(p / 2, p % 2, k / 3, k % 3);
        if (p > 0 && !(value > top) && value == value) continue;  // a NaN wins
        top    = value;
        winner = p;
      }
      y[at]       = static_cast<T>(relu != 0 && top < 0 ? 0 : top);
      winners[at] = static_cast<unsigned char>(relu != 0 && !(top > 0) ? ConvPool::nobody : winner);
    }
  });
}

template <class T>
cudaError_t conv_pool_back(ConvPool const& of, std::size_t images, T const* x, T const* dy,
                           unsigned char const* winners, float* scratch, float* d_kernel, float* d_bias,
                           cudaStream_t queue) {
  auto const filters = static_cast<std::size_t>(of.filters);
  auto const pixels  = static_cast<std::size_t>(of.conv.height * of.conv.width);
  auto const width   = of.pool.out_width();
  auto const parts   = of.parts(images);
  auto const code    = add_columns<10>(
      of.strips(images), filters, parts, queue,
      [=] __device__(std::size_t row, std::size_t filter, double* sums) {
        auto const strip = Strip{of, row, filter};
        auto patch       = Patch<T>{of.conv, x + strip.image * pixels, strip.row};
        auto at          = strip.begin;
        float mine[10]{};  // gradients of the kernel, then of the bias
        for (int column = 0; column < width; ++column, at += filters) {
          patch.move();
          auto const winner = winners[at];
          auto const d      = static_cast<float>(dy[at]);
          for (int p = 0; p < 4; ++p) {
            auto const here = winner == p ? d : 0;
            for (int k = 0; k < 9; ++k) mine[k] += here * patch.at(p / 2, p % 2, k / 3, k % 3);
            mine[9] += here;
          }
        }
        for (int n = 0; n < 10; ++n) sums[n] += static_cast<double>(mine[n]);
      },
      [=] __device__(std::size_t part, std::size_t filter, double const* sums) {
        for (int n = 0; n < 10; ++n) scratch[(part * 10 + n) * filters + filter] = static_cast<float>(sums[n]);
      });
  if (code != cudaSuccess) return code;
  return add_columns<1>(
      parts, 10 * filters, 1, queue,
      [=] __device__(std::size_t part, std::size_t i, double* sum) {
        sum[0] += static_cast<double>(scratch[part * 10 * filters + i]);
      },
      [=] __device__(std::size_t, std::size_t i, double const* sum) {
        if (i < 9 * filters) d_kernel[i] = static_cast<float>(sum[0]);
        else if (d_bias != nullptr) d_bias[i - 9 * filters] = static_cast<float>(sum[0]);
      });
}

}  // namespace detail

cudaError_t conv_pool(ConvPool const& of, std::size_t images, Values x, float const* kernel, float const* bias,
                      Values y, unsigned char* winners, int relu, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::conv_pool(of, images, x.as<T const>(), kernel, bias, y.as<T>(), winners, relu, queue);
  });
}
cudaError_t conv_pool_back(ConvPool const& of, std::size_t images, Values x, Values dy, unsigned char const* winners,
                           float* scratch, float* d_kernel, float* d_bias, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::conv_pool_back(of, images, x.as<T const>(), dy.as<T const>(), winners, scratch, d_kernel, d_bias,
                                  queue);
  });
}

}  // namespace chorale::cuda::launch
