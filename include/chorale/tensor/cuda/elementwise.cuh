// SPDX-License-Identifier: Apache-2.0
//
// Kernels of layers. Not inline: all.cuh is included once in a program.
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/cuda/element_types.cuh>
#include <chorale/tensor/cuda/launch.cuh>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/softmax.cuh>
#include <chorale/tensor/kernels.hpp>

#include <cfloat>
#include <cstddef>
#include <cstdint>

namespace chorale::cuda::launch {

namespace detail {

__device__ inline float value_of(Activation f, float alpha, float x) {
  switch (f) {
    case Activation::relu: return x < 0 ? 0 : x;  // a NaN stays a NaN
    case Activation::leaky_relu: return x > 0 ? x : alpha * x;
    case Activation::elu: return x > 0 ? x : alpha * expm1f(x);
    case Activation::tanh: return tanhf(x);
    case Activation::sigmoid: return 1 / (1 + expf(-x));
    case Activation::softplus: return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
    case Activation::gelu: return x * normcdff(x);
    case Activation::silu: return x / (1 + expf(-x));
    case Activation::gelu_tanh: return x / (1 + expf(-1.5957691F * x * (1 + 0.044715F * x * x)));  // sqrt(8 / pi)
  }
  return 0;
}

/// f'(x); `of` is f(x) where differentiates_from_y(f), else x.
__device__ inline float slope_of(Activation f, float alpha, float of) {
  switch (f) {
    case Activation::relu: return of > 0 ? 1 : 0;
    case Activation::leaky_relu: return of > 0 ? 1 : alpha;
    case Activation::elu: return of > 0 ? 1 : of + alpha;
    case Activation::tanh: return 1 - of * of;
    case Activation::sigmoid: return of * (1 - of);
    case Activation::softplus: return 1 / (1 + expf(-of));
    case Activation::gelu: return normcdff(of) + of * expf(-of * of / 2) * 0.39894228F;  // 1 / sqrt(2 pi)
    case Activation::silu: {
      auto const s = 1 / (1 + expf(-of));
      return s * (1 + of * (1 - s));
    }
    case Activation::gelu_tanh: {
      auto const square = of * of, s = 1 / (1 + expf(-1.5957691F * of * (1 + 0.044715F * square)));
      return s * (1 + of * (1 - s) * 1.5957691F * (1 + 0.134145F * square));
    }
  }
  return 0;
}

/// Image, pixel of y and channel of element i of y, and where the window begins, in pixels of x.
struct Place {
  int channel, top, left, row, column;
  std::size_t image;

  __device__ Place(Window const& w, int height, int width, std::size_t i) {
    auto const of_pixel = Divided{i, static_cast<std::size_t>(w.channels)};
    auto const of_row   = Divided{of_pixel.quotient, static_cast<std::size_t>(width)};
    auto const of_image = Divided{of_row.quotient, static_cast<std::size_t>(height)};
    channel = static_cast<int>(of_pixel.rest), column = static_cast<int>(of_row.rest);
    row = static_cast<int>(of_image.rest), image = of_image.quotient;
    top  = row * w.stride - w.pad_before;
    left = column * w.stride - w.pad_left;
  }
};

__device__ inline std::size_t at(Window const& w, std::size_t image, int row, int column, int channel) {
  return ((image * w.height + row) * w.width + column) * w.channels + channel;
}

/// Number of pixels of a window that are within the image.
__device__ inline int inside(Window const& w, int top, int left) {
  auto const count = [&](int begin, int size) { return min(begin + w.kernel, size) - max(begin, 0); };
  return count(top, w.height) * count(left, w.width);
}

template <class X, class Y> cudaError_t convert(std::size_t n, X const* x, Y* y, cudaStream_t queue) {
  return map(
      n, queue, [=] __device__(X from, Y & to) { to = static_cast<Y>(static_cast<float>(from)); }, read(x), written(y));
}

template <class T>
cudaError_t activate(Activation f, float alpha, std::size_t n, T const* x, T* y, cudaStream_t queue) {
  return each(n, queue,
              [=] __device__(std::size_t i) { y[i] = static_cast<T>(value_of(f, alpha, static_cast<float>(x[i]))); });
}
template <class T>
cudaError_t activate_back(Activation f, float alpha, std::size_t n, T const* of, T const* dy, T* dx,
                          cudaStream_t queue) {
  return each(n, queue, [=] __device__(std::size_t i) {
    dx[i] = static_cast<T>(static_cast<float>(dy[i]) * slope_of(f, alpha, static_cast<float>(of[i])));
  });
}

template <class T>
cudaError_t add_bias(std::size_t rows, std::size_t width, float const* bias, T* y, int relu, cudaStream_t queue) {
  return map_rows(
      rows * width, width, queue,
      [=] __device__(T & value, float shift) {
        auto const sum = static_cast<float>(value) + shift;
        value          = static_cast<T>(relu != 0 && sum < 0 ? 0 : sum);
      },
      changed(y), of_column(bias));
}
template <class T>
cudaError_t column_sums(std::size_t rows, std::size_t width, T const* x, float* scratch, float* sums,
                        cudaStream_t queue) {
  auto const parts = partials_of(width);
  auto const code  = add_columns<1>(
      rows, width, parts, queue,
      [=] __device__(std::size_t row, std::size_t column, double* sum) {
        sum[0] += static_cast<double>(static_cast<float>(x[row * width + column]));
      },
      [=] __device__(std::size_t part, std::size_t column, double const* sum) {
        scratch[part * width + column] = static_cast<float>(sum[0]);
      });
  if (code != cudaSuccess) return code;
  return add_columns<1>(
      parts, width, 1, queue,
      [=] __device__(std::size_t part, std::size_t column, double* sum) {
        sum[0] += static_cast<double>(scratch[part * width + column]);
      },
      [=] __device__(std::size_t, std::size_t column, double const* sum) {
        sums[column] = static_cast<float>(sum[0]);
      });
}
template <class X, class Y>
cudaError_t transpose(std::size_t rows, std::size_t columns, X const* x, Y* y, cudaStream_t queue) {
  return turn(
      rows, columns, queue, [=] __device__(std::size_t i) { return static_cast<float>(x[i]); },
      [=] __device__(std::size_t i, float value) { y[i] = static_cast<Y>(value); });
}

template <class T>
cudaError_t shift(std::size_t images, int channels, Extent from, T const* x, int down, int right, Extent to, T* y,
                  cudaStream_t queue) {
  auto const n = images * static_cast<std::size_t>(to.height) * to.width * channels;
  return each(n, queue, [=] __device__(std::size_t i) {
    auto const p   = Place{Window{.channels = channels}, to.height, to.width, i};
    auto const row = p.row - down, column = p.column - right;
    auto const image   = p.image;
    auto const channel = p.channel;
    auto const there   = row >= 0 && row < from.height && column >= 0 && column < from.width;
    y[i]               = there ? x[((image * from.height + row) * from.width + column) * channels + channel] : T{};
  });
}

/// The mean of all pixels of each image: a pool with one window per image.
template <class T>
cudaError_t mean_pixel(std::size_t images, std::size_t pixels, std::size_t channels, T const* x, T* y, int relu,
                       cudaStream_t queue) {
  return add_columns<1>(
      images * pixels, channels, images, queue,
      [=] __device__(std::size_t pixel, std::size_t channel, double* sum) {
        sum[0] += static_cast<double>(static_cast<float>(x[pixel * channels + channel]));
      },
      [=] __device__(std::size_t image, std::size_t channel, double const* sum) {
        auto const mean               = static_cast<float>(sum[0] / static_cast<double>(pixels));
        y[image * channels + channel] = static_cast<T>(relu != 0 && mean < 0 ? 0 : mean);
      });
}

template <class T>
cudaError_t pool(Pool kind, Window const& w, std::size_t images, T const* x, T* y, int* winners, int relu,
                 cudaStream_t queue) {
  auto const height = w.out_height(), width = w.out_width();
  auto const n = images * static_cast<std::size_t>(height) * width * w.channels;
  if (kind == Pool::average && height == 1 && width == 1 && w.kernel == w.height && w.kernel == w.width)
    return mean_pixel(images, static_cast<std::size_t>(w.height) * w.width, static_cast<std::size_t>(w.channels), x, y,
                      relu, queue);
  return each(n, queue, [=] __device__(std::size_t i) {
    auto const p = Place{w, height, width, i};
    auto top = -FLT_MAX, sum = 0.0F;
    auto winner = -1;
    for (int r = 0; r < w.kernel; ++r)
      for (int c = 0; c < w.kernel; ++c) {
        if (p.top + r < 0 || p.top + r >= w.height || p.left + c < 0 || p.left + c >= w.width) continue;
        auto const value = static_cast<float>(x[at(w, p.image, p.top + r, p.left + c, p.channel)]);
        sum += value;
        if (winner >= 0 && !(value > top) && value == value) continue;  // a NaN wins
        top    = value;
        winner = r * w.kernel + c;
      }
    auto const result = kind == Pool::max ? top : sum / static_cast<float>(inside(w, p.top, p.left));
    y[i]              = static_cast<T>(relu != 0 && result < 0 ? 0 : result);
    if (kind == Pool::max) winners[i] = relu != 0 && !(result > 0) ? -1 : winner;
  });
}

template <class T>
cudaError_t pool_back(Pool kind, Window const& w, std::size_t images, T const* dy, int const* winners, T* dx,
                      cudaStream_t queue) {
  auto const height = w.out_height(), width = w.out_width();
  auto const n = images * static_cast<std::size_t>(w.height) * w.width * w.channels;
  return each(n, queue, [=] __device__(std::size_t i) {
    auto const p       = Place{w, w.height, w.width, i};
    auto const channel = p.channel, row = p.row, column = p.column;
    auto const image      = p.image;
    auto const first      = [&](int pixel) { return pixel < w.kernel ? 0 : (pixel - w.kernel) / w.stride + 1; };
    auto const padded_row = row + w.pad_before, padded_column = column + w.pad_left;
    auto sum = 0.0F;
    for (int r = first(padded_row); r < height && r * w.stride <= padded_row; ++r)
      for (int c = first(padded_column); c < width && c * w.stride <= padded_column; ++c) {
        auto const k  = ((image * height + r) * width + c) * w.channels + channel;
        auto const me = (padded_row - r * w.stride) * w.kernel + padded_column - c * w.stride;
        if (kind == Pool::max && winners[k] != me) continue;
        auto const pixels = kind == Pool::max ? 1 : inside(w, r * w.stride - w.pad_before, c * w.stride - w.pad_left);
        sum += static_cast<float>(dy[k]) / static_cast<float>(pixels);
      }
    dx[i] = static_cast<T>(sum);
  });
}

template <class T> cudaError_t add(std::size_t n, T const* a, T const* b, T* y, int relu, cudaStream_t queue) {
  return map(
      n, queue,
      [=] __device__(T one, T other, T & to) {
        auto const sum = static_cast<float>(one) + static_cast<float>(other);
        to             = static_cast<T>(relu != 0 && sum < 0 ? 0 : sum);
      },
      read(a), read(b), written(y));
}

template <class T> cudaError_t softmax(std::size_t rows, std::size_t classes, T const* x, T* y, cudaStream_t queue) {
  return each(rows, queue, [=] __device__(std::size_t r) { softmax_of(classes, x + r * classes, y + r * classes); });
}

template <class T>
cudaError_t softmax_back(std::size_t rows, std::size_t classes, T const* y, T const* dy, T* dx, cudaStream_t queue) {
  return each(rows, queue, [=] __device__(std::size_t r) {
    auto const at = r * classes;
    auto dot      = 0.0F;
    for (auto i = at; i < at + classes; ++i) dot += static_cast<float>(y[i]) * static_cast<float>(dy[i]);
    for (auto i = at; i < at + classes; ++i) {
      dx[i] = static_cast<T>(static_cast<float>(y[i]) * (static_cast<float>(dy[i]) - dot));
    }
  });
}

template <class T>
cudaError_t dropout(std::size_t rows, std::size_t width, T* x, float rate, StepNumbers const* now, std::uint64_t stream,
                    cudaStream_t queue) {
  auto const blocks = (width + 3) / 4;  // Philox gives four words at a time
  auto const limit  = static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
  return each(rows * blocks, queue, [=] __device__(std::size_t i) {
    auto const place = Divided{i, blocks};
    auto const row = place.quotient, b = place.rest;
    auto const words = Random{now->drawn(), stream}.words((now->first_row + row) * blocks + b);
    for (std::size_t k = 4 * b; k < 4 * b + 4 && k < width; ++k) {
      auto& value = x[row * width + k];
      value       = static_cast<T>(words[k % 4] < limit ? 0 : static_cast<float>(value) * (1 / (1 - rate)));
    }
  });
}

}  // namespace detail

cudaError_t convert(std::size_t n, Values x, Values y, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class X>(X) {
    return detail::typed(y.of, [&]<class Y>(Y) { return detail::convert(n, x.as<X const>(), y.as<Y>(), queue); });
  });
}

cudaError_t activate(Activation f, float alpha, std::size_t n, Values x, Values y, cudaStream_t queue) {
  return detail::typed(x.of,
                       [&]<class T>(T) { return detail::activate(f, alpha, n, x.as<T const>(), y.as<T>(), queue); });
}
cudaError_t activate_back(Activation f, float alpha, std::size_t n, Values of, Values dy, Values dx,
                          cudaStream_t queue) {
  return detail::typed(of.of, [&]<class T>(T) {
    return detail::activate_back(f, alpha, n, of.as<T const>(), dy.as<T const>(), dx.as<T>(), queue);
  });
}

cudaError_t add_bias(std::size_t rows, std::size_t width, float const* bias, Values y, int relu, cudaStream_t queue) {
  return detail::typed(y.of, [&]<class T>(T) { return detail::add_bias(rows, width, bias, y.as<T>(), relu, queue); });
}
cudaError_t column_sums(std::size_t rows, std::size_t width, Values x, float* scratch, float* sums,
                        cudaStream_t queue) {
  return detail::typed(
      x.of, [&]<class T>(T) { return detail::column_sums(rows, width, x.as<T const>(), scratch, sums, queue); });
}
cudaError_t transpose(std::size_t rows, std::size_t columns, Values x, Values y, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class X>(X) {
    return detail::typed(
        y.of, [&]<class Y>(Y) { return detail::transpose(rows, columns, x.as<X const>(), y.as<Y>(), queue); });
  });
}

cudaError_t shift(std::size_t images, int channels, Extent from, Values x, int down, int right, Extent to, Values y,
                  cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::shift(images, channels, from, x.as<T const>(), down, right, to, y.as<T>(), queue);
  });
}

cudaError_t pool(Pool kind, Window const& w, std::size_t images, Values x, Values y, int* winners, int relu,
                 cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::pool(kind, w, images, x.as<T const>(), y.as<T>(), winners, relu, queue);
  });
}
cudaError_t pool_back(Pool kind, Window const& w, std::size_t images, Values dy, int const* winners, Values dx,
                      cudaStream_t queue) {
  return detail::typed(dy.of, [&]<class T>(T) {
    return detail::pool_back(kind, w, images, dy.as<T const>(), winners, dx.as<T>(), queue);
  });
}

cudaError_t add(std::size_t n, Values a, Values b, Values y, int relu, cudaStream_t queue) {
  return detail::typed(
      a.of, [&]<class T>(T) { return detail::add(n, a.as<T const>(), b.as<T const>(), y.as<T>(), relu, queue); });
}

cudaError_t softmax(std::size_t rows, std::size_t classes, Values x, Values y, cudaStream_t queue) {
  return detail::typed(x.of,
                       [&]<class T>(T) { return detail::softmax(rows, classes, x.as<T const>(), y.as<T>(), queue); });
}
cudaError_t softmax_back(std::size_t rows, std::size_t classes, Values y, Values dy, Values dx, cudaStream_t queue) {
  return detail::typed(y.of, [&]<class T>(T) {
    return detail::softmax_back(rows, classes, y.as<T const>(), dy.as<T const>(), dx.as<T>(), queue);
  });
}

cudaError_t dropout(std::size_t rows, std::size_t width, Values x, float rate, StepNumbers const* now,
                    std::uint64_t stream, cudaStream_t queue) {
  return detail::typed(x.of,
                       [&]<class T>(T) { return detail::dropout(rows, width, x.as<T>(), rate, now, stream, queue); });
}

}  // namespace chorale::cuda::launch
