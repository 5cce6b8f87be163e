// SPDX-License-Identifier: Apache-2.0
//
// Kernels of batch normalization. Not inline: all.cuh is included once in a program.
#pragma once

#include <chorale/tensor/cuda/element_types.cuh>
#include <chorale/tensor/cuda/launch.cuh>
#include <chorale/tensor/cuda/launch.hpp>

#include <cmath>
#include <cstddef>

namespace chorale::cuda::launch {

namespace detail {

/// y before the ReLU. Backward gets the same bits as forward, since the compiler has no choice between a fused and a
/// separate multiplication and addition.
__device__ inline float normalized(float x, float mean, float scale, float beta) { return fmaf(x - mean, scale, beta); }

/// Adds up two sums for each channel: add(at, channel, sums) adds the contribution of element `at`.
template <class F>
cudaError_t add_channels(std::size_t pixels, std::size_t channels, ChannelSums to, cudaStream_t queue, F add) {
  return add_columns<2>(
      pixels, channels, to.parts, queue,
      [=] __device__(std::size_t p, std::size_t c, double* sum) { add(p * channels + c, c, sum); },
      [=] __device__(std::size_t part, std::size_t c, double const* sum) {
        to.at[part * 2 * channels + c]            = sum[0];
        to.at[part * 2 * channels + channels + c] = sum[1];
      });
}

/// Calls take(channel, sums) with both sums of each channel.
template <class F> cudaError_t take_channels(std::size_t channels, ChannelSums of, cudaStream_t queue, F take) {
  return add_columns<2>(
      of.parts, channels, 1, queue,
      [=] __device__(std::size_t part, std::size_t c, double* sum) {
        sum[0] += of.at[part * 2 * channels + c];
        sum[1] += of.at[part * 2 * channels + channels + c];
      },
      [=] __device__(std::size_t, std::size_t c, double const* sum) { take(c, sum); });
}

/// Writes the input of normalize_back from two sums over `count` pixels.
__device__ inline void write_slopes(std::size_t channels, std::size_t c, double sum, double sum_u, Moments of,
                                    double count, float* slopes) {
  slopes[c]            = static_cast<float>(sum / count);
  slopes[channels + c] = static_cast<float>(sum_u / count) * of.inverse[c];
}

template <class T>
cudaError_t channel_sums(std::size_t pixels, std::size_t channels, T const* x, ChannelSums to, cudaStream_t queue) {
  return add_channels(pixels, channels, to, queue, [=] __device__(std::size_t at, std::size_t, double* sum) {
    auto const value = static_cast<double>(static_cast<float>(x[at]));
    sum[0] += value;
    sum[1] += value * value;
  });
}

template <class T>
cudaError_t channel_sums_back(std::size_t pixels, std::size_t channels, T const* x, Normalization const& of,
                              T const* dy, ChannelSums to, cudaStream_t queue) {
  return add_channels(pixels, channels, to, queue, [=] __device__(std::size_t at, std::size_t c, double* sum) {
    auto const mean = of.of.mean[c], here = static_cast<float>(x[at]), back = static_cast<float>(dy[at]);
    auto const cut = of.relu != 0 && !(normalized(here, mean, of.gamma[c] * of.of.inverse[c], of.beta[c]) > 0);
    auto const d   = static_cast<double>(cut ? 0 : back);
    sum[0] += d;
    sum[1] += d * static_cast<double>(here - mean);
  });
}

template <class T>
cudaError_t normalize(std::size_t pixels, std::size_t channels, T const* x, Normalization const& by, T* y,
                      cudaStream_t queue) {
  auto const relu = by.relu;
  return map_rows(
      pixels * channels, channels, queue,
      [=] __device__(T here, T & to, float mean, float inverse, float gamma, float beta) {
        auto const value = normalized(static_cast<float>(here), mean, gamma * inverse, beta);
        to               = static_cast<T>(relu != 0 && value < 0 ? 0 : value);
      },
      read(x), written(y), of_column(by.of.mean), of_column(by.of.inverse), of_column(by.gamma), of_column(by.beta));
}

template <class T>
cudaError_t normalize_back(std::size_t pixels, std::size_t channels, T const* x, Normalization const& of,
                           float const* slopes, T const* dy, T* dx, cudaStream_t queue) {
  auto const relu = of.relu;
  return map_rows(
      pixels * channels, channels, queue,
      [=] __device__(T at, T back, T & to, float mean, float inverse, float gamma, float beta, float of_sum,
                     float of_product) {
        auto const here = static_cast<float>(at), scale = gamma * inverse;
        auto const cut = relu != 0 && !(normalized(here, mean, scale, beta) > 0);
        auto const d   = cut ? 0 : static_cast<float>(back);
        to             = static_cast<T>(scale * (d - of_sum - of_product * (here - mean)));
      },
      read(x), read(dy), written(dx), of_column(of.of.mean), of_column(of.of.inverse), of_column(of.gamma),
      of_column(of.beta), of_column(slopes), of_column(slopes + channels));
}

}  // namespace detail

cudaError_t channel_sums(std::size_t pixels, std::size_t channels, Values x, ChannelSums to, cudaStream_t queue) {
  return detail::typed(x.of,
                       [&]<class T>(T) { return detail::channel_sums(pixels, channels, x.as<T const>(), to, queue); });
}
cudaError_t channel_sums_back(std::size_t pixels, std::size_t channels, Values x, Normalization const& of, Values dy,
                              ChannelSums to, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::channel_sums_back(pixels, channels, x.as<T const>(), of, dy.as<T const>(), to, queue);
  });
}
cudaError_t sum_parts(std::size_t channels, ChannelSums of, double* sums, cudaStream_t queue) {
  return detail::take_channels(channels, of, queue, [=] __device__(std::size_t c, double const* sum) {
    sums[c]            = sum[0];
    sums[channels + c] = sum[1];
  });
}
cudaError_t normalize(std::size_t pixels, std::size_t channels, Values x, Normalization const& by, Values y,
                      cudaStream_t queue) {
  return detail::typed(
      x.of, [&]<class T>(T) { return detail::normalize(pixels, channels, x.as<T const>(), by, y.as<T>(), queue); });
}
cudaError_t normalize_back(std::size_t pixels, std::size_t channels, Values x, Normalization const& of,
                           float const* slopes, Values dy, Values dx, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::normalize_back(pixels, channels, x.as<T const>(), of, slopes, dy.as<T const>(), dx.as<T>(), queue);
  });
}

cudaError_t moments(std::size_t channels, ChannelSums sums, double count, float rows, float epsilon, Moments to,
                    float* d_mean, float* d_variance, cudaStream_t queue) {
  return detail::take_channels(channels, sums, queue, [=] __device__(std::size_t c, double const* sum) {
    auto const mean   = sum[0] / count;
    auto const rest   = sum[1] / count - mean * mean;
    auto const spread = rest > 0 ? rest : 0;
    to.mean[c]        = static_cast<float>(mean);
    to.inverse[c]     = static_cast<float>(1 / sqrt(spread + static_cast<double>(epsilon)));
    d_mean[c]         = to.mean[c] * rows;
    d_variance[c]     = static_cast<float>(spread) * rows;
  });
}
cudaError_t moving_moments(std::size_t channels, float const* mean, float const* variance, float epsilon, Moments to,
                           cudaStream_t queue) {
  return detail::each(channels, queue, [=] __device__(std::size_t c) {
    to.mean[c]    = mean[c];
    to.inverse[c] = static_cast<float>(1 / sqrt(static_cast<double>(variance[c]) + static_cast<double>(epsilon)));
  });
}

cudaError_t normalize_sums(std::size_t channels, ChannelSums of, Moments moments, double count, double* sums,
                           float* slopes, float* d_gamma, float* d_beta, cudaStream_t queue) {
  return detail::take_channels(channels, of, queue, [=] __device__(std::size_t c, double const* sum) {
    auto const sum_u   = sum[1] * static_cast<double>(moments.inverse[c]);
    sums[c]            = sum[0];
    sums[channels + c] = sum_u;
    d_beta[c]          = static_cast<float>(sum[0]);
    d_gamma[c]         = static_cast<float>(sum_u);
    detail::write_slopes(channels, c, sum[0], sum_u, moments, count, slopes);
  });
}
cudaError_t slopes(std::size_t channels, double const* sums, Moments of, double count, float* slopes,
                   cudaStream_t queue) {
  return detail::each(channels, queue, [=] __device__(std::size_t c) {
    detail::write_slopes(channels, c, sums[c], sums[channels + c], of, count, slopes);
  });
}

}  // namespace chorale::cuda::launch
