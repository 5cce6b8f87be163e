// SPDX-License-Identifier: Apache-2.0
//
// Kernels of batch normalization. Not inline: ops_cuda.cuh is included once in a program.
#pragma once

#include <chorale/tensor/each_cuda.cuh>
#include <chorale/tensor/launch_cuda.hpp>

#include <cmath>
#include <cstddef>

namespace chorale::cuda::launch {

cudaError_t channel_sums(std::size_t pixels, std::size_t channels, float const* v, float const* x, float const* mean,
                         double* scratch, double* sums, cudaStream_t queue) {
  auto const per  = (pixels + partials - 1) / partials;
  auto const code = detail::each(partials * channels, queue, [=] __device__(std::size_t i) {
    auto const c      = i % channels;
    auto const first  = i / channels * per, end = first + per < pixels ? first + per : pixels;
    auto const middle = mean == nullptr ? 0 : mean[c];
    auto plain = 0.0, times = 0.0;
    for (auto p = first; p < end; ++p) {
      auto const value = static_cast<double>(v[p * channels + c]);
      plain += value;
      times += value * static_cast<double>(x[p * channels + c] - middle);
    }
    auto* const to = scratch + i / channels * 2 * channels + c;
    to[0]          = plain;
    to[channels]   = times;
  });
  if (code != cudaSuccess) return code;
  return detail::each(2 * channels, queue, [=] __device__(std::size_t column) {
    auto sum = 0.0;
    for (unsigned part = 0; part < partials; ++part) sum += scratch[part * 2 * channels + column];
    sums[column] = sum;
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
cudaError_t normalize(std::size_t pixels, std::size_t channels, float const* x, Moments of, float const* gamma,
                      float const* beta, float* y, int relu, cudaStream_t queue) {
  return detail::each(pixels * channels, queue, [=] __device__(std::size_t i) {
    auto const c     = i % channels;
    auto const value = (x[i] - of.mean[c]) * (gamma[c] * of.inverse[c]) + beta[c];
    y[i] = relu != 0 && value < 0 ? 0 : value;
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
cudaError_t normalize_back(std::size_t pixels, std::size_t channels, float const* x, Moments of, float const* gamma,
                           double const* sums, double count, float* slopes, float const* dy, float* dx,
                           cudaStream_t queue) {
  auto const code = detail::each(channels, queue, [=] __device__(std::size_t c) {
    slopes[c]            = static_cast<float>(sums[c] / count);
    slopes[channels + c] = static_cast<float>(sums[channels + c] / count) * of.inverse[c];
  });
  if (code != cudaSuccess) return code;
  return detail::each(pixels * channels, queue, [=] __device__(std::size_t i) {
    auto const c = i % channels;
    dx[i] = gamma[c] * of.inverse[c] * (dy[i] - slopes[c] - slopes[channels + c] * (x[i] - of.mean[c]));
  });
}

}  // namespace chorale::cuda::launch
