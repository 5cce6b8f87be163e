// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization on a GPU; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/tensor/cuda/kernels.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <limits>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// y = gamma · (x - mean) / sqrt(variance + epsilon) + beta, for each channel, as the CPU has it, and max(y, 0) at once
/// where a ReLU follows in place. Our own kernels, since cuDNN's never take the statistics over all replicas.
///
/// x, y      (B, H, W, C) or (B, C)
/// kernel    gamma (C); bias: beta (C); mean, variance: moving (C), which forward only reads
/// cost      in training x is read twice, and x and dy twice more in backward, which includes the ReLU's. Normalized
///           over the batch of several replicas, forward and backward each wait once for the device, since replicas
///           accumulate on the host
/// order     sums are double, in one order: the same bits for the same numbers
/// source    Ioffe & Szegedy, ICML 2015; tf.keras.layers.BatchNormalization
class Kernels<Cuda>::BatchNorm {
 public:
  BatchNorm(runtime& rt, layout const& in, layout const& /*plain*/, int channels, float epsilon, Normalize over)
      : rt_{&rt}, in_{in}, channels_{static_cast<std::size_t>(channels)}, epsilon_{epsilon}, over_{over} {}

  layout out() const { return in_; }
  std::size_t workspace() const {
    auto cut = cuda::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut = cuda::Cutter{p.workspace};
    at_      = place(cut);
    p_       = p;
    by_      = {at_.of, p.kernel, p.bias, rt_->take_relu(p.y, runtime::Takes::both)};
  }

  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read

  void forward(Pass const& pass) {
    count_ = std::numeric_limits<double>::infinity();  // of moving statistics, which no x changes
    if (pass.training) measure(pass);
    else
      cuda::expect(cuda::launch::moving_moments(channels_, p_.mean, p_.variance, epsilon_, at_.of, cuda::queue()),
                   "moving_moments");
    cuda::expect(cuda::launch::normalize(pixels(), channels_, in_.at(p_.x), by_, in_.at(p_.y), cuda::queue()),
                 "normalize");
  }

  /// Computes gradients after a forward; for gamma and beta they are sums over this share alone.
  void backward(Pass const& pass) const {
    cuda::expect(cuda::launch::channel_sums_back(pixels(), channels_, in_.at(p_.x), by_, in_.at(p_.dy), at_.parts,
                                                 cuda::queue()),
                 "channel_sums_back");
    cuda::expect(cuda::launch::normalize_sums(channels_, at_.parts, at_.of, count_, at_.sums, at_.slopes, p_.d_kernel,
                                              p_.d_bias, cuda::queue()),
                 "normalize_sums");
    if (p_.dx == nullptr) return;
    if (with_others(pass)) {
      rt_->synchronize();
      pass.together({at_.sums, 2 * channels_});
      cuda::expect(cuda::launch::slopes(channels_, at_.sums, at_.of, count_, at_.slopes, cuda::queue()), "slopes");
    }
    cuda::expect(cuda::launch::normalize_back(pixels(), channels_, in_.at(p_.x), by_, at_.slopes, in_.at(p_.dy),
                                              in_.at(p_.dx), cuda::queue()),
                 "normalize_back");
  }

 private:
  struct Places {
    double* sums;                     // 2 C and one, sent together
    cuda::launch::ChannelSums parts;  // of the sums
    cuda::launch::Moments of;
    float* slopes;  // 2 C
  };
  Places place(cuda::Cutter& cut) const {
    auto const parts = cuda::launch::partials_of(channels_);
    return {cut.take_some<double>(2 * channels_ + 1),
            {cut.take_some<double>(parts * 2 * channels_), parts},
            {cut.take_floats(channels_), cut.take_floats(channels_)},
            cut.take_floats(2 * channels_)};
  }

  std::size_t pixels() const { return in_.pixels(); }
  bool with_others(Pass const& pass) const {
    return pass.training && over_ == Normalize::over_batch && pass.together.all_reduce != nullptr;
  }

  /// Computes mean and variance of all that is normalized together.
  void measure(Pass const& pass) {
    cuda::expect(cuda::launch::channel_sums(pixels(), channels_, in_.at(p_.x), at_.parts, cuda::queue()),
                 "channel_sums");
    auto sums = at_.parts;
    count_    = static_cast<double>(pixels());
    if (with_others(pass)) {
      cuda::expect(cuda::launch::sum_parts(channels_, sums, at_.sums, cuda::queue()), "sum_parts");
      sums = {at_.sums, 1};
      rt_->synchronize();
      at_.sums[2 * channels_] = count_;
      pass.together({at_.sums, 2 * channels_ + 1});
      count_ = at_.sums[2 * channels_];
    }
    cuda::expect(cuda::launch::moments(channels_, sums, count_, static_cast<float>(in_.rows), epsilon_, at_.of,
                                       p_.d_mean, p_.d_variance, cuda::queue()),
                 "moments");
  }

  runtime* rt_;
  layout in_;
  std::size_t channels_;
  float epsilon_;
  Normalize over_;
  double count_ = 0;  // pixels that were normalized last
  Places at_{};
  Ports p_{};
  cuda::launch::Normalization by_{};
};

}  // namespace chorale

#endif
