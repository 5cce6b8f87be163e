// SPDX-License-Identifier: Apache-2.0
//
// Kernels of batch normalization. Not inline: ops_cuda.cuh is included once in a program.
#pragma once

#include <chorale/tensor/each_cuda.cuh>
#include <chorale/tensor/launch_cuda.hpp>
#include <chorale/tensor/elements_cuda.cuh>

#include <cmath>
#include <cstddef>

namespace chorale::cuda::launch {

namespace detail {

template <class T>
cudaError_t channel_sums(std::size_t pixels, std::size_t channels, T const* v, T const* x, float const* mean,
                         double* scratch, double* sums, cudaStream_t queue) {
  auto const parts = partials_of(channels);
  auto const code  = add_columns<2>(pixels, channels, parts, queue,
      [=] __device__(std::size_t p, std::size_t c, double* sum) {
        auto const value  = static_cast<double>(static_cast<float>(v[p * channels + c]));
        auto const middle = mean == nullptr ? 0 : mean[c];
        sum[0] += value;
        sum[1] += value * static_cast<double>(static_cast<float>(x[p * channels + c]) - middle);
      },
      [=] __device__(std::size_t part, std::size_t c, double const* sum) {
        scratch[part * 2 * channels + c]            = sum[0];
        scratch[part * 2 * channels + channels + c] = sum[1];
      });
  if (code != cudaSuccess) return code;
  return add_columns<1>(parts, 2 * channels, 1, queue,
      [=] __device__(std::size_t part, std::size_t column, double* sum) {
        sum[0] += scratch[part * 2 * channels + column];
      },
      [=] __device__(std::size_t, std::size_t column, double const* sum) { sums[column] = sum[0]; });
}

template <class T>
cudaError_t normalize(std::size_t pixels, std::size_t channels, T const* x, Moments of, float const* gamma,
                      float const* beta, T* y, int relu, cudaStream_t queue) {
  return each(pixels * channels, queue, [=] __device__(std::size_t i) {
    auto const c     = Divided{i, channels}.rest;
    auto const value = (static_cast<float>(x[i]) - of.mean[c]) * (gamma[c] * of.inverse[c]) + beta[c];
    y[i] = static_cast<T>(relu != 0 && value < 0 ? 0 : value);
  });
}

template <class T>
cudaError_t normalize_back(std::size_t pixels, std::size_t channels, T const* x, Moments of, float const* gamma,
                           double const* sums, double count, float* slopes, T const* dy, T* dx,
                           cudaStream_t queue) {
  auto const code = each(channels, queue, [=] __device__(std::size_t c) {
    slopes[c]            = static_cast<float>(sums[c] / count);
    slopes[channels + c] = static_cast<float>(sums[channels + c] / count) * of.inverse[c];
  });
  if (code != cudaSuccess) return code;
  return each(pixels * channels, queue, [=] __device__(std::size_t i) {
    auto const c = Divided{i, channels}.rest;
    auto const from_mean = static_cast<float>(x[i]) - of.mean[c];
    dx[i] = static_cast<T>(gamma[c] * of.inverse[c] *
                           (static_cast<float>(dy[i]) - slopes[c] - slopes[channels + c] * from_mean));
  });
}

}  // namespace detail

cudaError_t channel_sums(std::size_t pixels, std::size_t channels, Values v, Values x, float const* mean,
                         double* scratch, double* sums, cudaStream_t queue) {
  return detail::typed(v.of, [&]<class T>(T) {
    return detail::channel_sums(pixels, channels, v.as<T const>(), x.as<T const>(), mean, scratch, sums, queue);
  });
}
cudaError_t normalize(std::size_t pixels, std::size_t channels, Values x, Moments of, float const* gamma,
                      float const* beta, Values y, int relu, cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::normalize(pixels, channels, x.as<T const>(), of, gamma, beta, y.as<T>(), relu, queue);
  });
}
cudaError_t normalize_back(std::size_t pixels, std::size_t channels, Values x, Moments of, float const* gamma,
                           double const* sums, double count, float* slopes, Values dy, Values dx,
                           cudaStream_t queue) {
  return detail::typed(x.of, [&]<class T>(T) {
    return detail::normalize_back(pixels, channels, x.as<T const>(), of, gamma, sums, count, slopes, dy.as<T const>(),
                                  dx.as<T>(), queue);
  });
}

cudaError_t moments(std::size_t channels, double const* sums, double count, float rows, float epsilon, Moments to,
                    float* d_mean, float* d_variance, cudaStream_t queue) {
  return detail::each(channels, queue, [=] __device__(std::size_t c) {
    auto const mean   = sums[c] / count;
    auto const rest   = sums[channels + c] / count - mean * mean;
    auto const spread = rest > 0 ? rest : 0;
    to.mean[c]    = static_cast<float>(mean);
    to.inverse[c] = static_cast<float>(1 / sqrt(spread + static_cast<double>(epsilon)));
    d_mean[c]     = to.mean[c] * rows;
    d_variance[c] = static_cast<float>(spread) * rows;
  });
}
cudaError_t moving_moments(std::size_t channels, float const* mean, float const* variance, float epsilon, Moments to,
                           cudaStream_t queue) {
  return detail::each(channels, queue, [=] __device__(std::size_t c) {
    to.mean[c]    = mean[c];
    to.inverse[c] = static_cast<float>(1 / sqrt(static_cast<double>(variance[c]) + static_cast<double>(epsilon)));
  });
}

cudaError_t normalize_sums(std::size_t channels, Moments of, double* sums, float* d_gamma, float* d_beta,
                           cudaStream_t queue) {
  return detail::each(channels, queue, [=] __device__(std::size_t c) {
    sums[channels + c] *= static_cast<double>(of.inverse[c]);
    d_beta[c]  = static_cast<float>(sums[c]);
    d_gamma[c] = static_cast<float>(sums[channels + c]);
  });
}

}  // namespace chorale::cuda::launch
