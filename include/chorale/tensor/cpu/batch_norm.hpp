// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace chorale {

/// y = gamma · (x - mean) / sqrt(variance + epsilon) + beta, for each channel. In training mean and variance are those
/// of this share of the batch, or of the whole batch over all replicas; else the moving ones.
///
/// x, y      (B, H, W, C), in any layout, or (B, C)
/// kernel    gamma (C); bias: beta (C); mean, variance: moving (C), which forward only reads: d_mean and d_variance get
///           the targets that they move towards, times rows
/// order     sums are double, over this share in one order: other shares of the same batch give nearly the same bits
/// source    Ioffe & Szegedy, ICML 2015; tf.keras.layers.BatchNormalization: its variance divides by the count
class Kernels<Cpu>::BatchNorm {
 public:
  /// plain     the layout to convert to where order_of() does not know `in`
  BatchNorm(runtime& rt, layout const& in, layout const& plain, int channels, float epsilon, Normalize over)
      : rt_{&rt}, in_{in}, channels_{static_cast<std::size_t>(channels)}, epsilon_{static_cast<double>(epsilon)},
        over_{over} {
    auto const known = order_of(in, channels_);
    own_   = known ? in : plain;
    order_ = known ? *known : *order_of(plain, channels_);
  }

  layout out() const { return own_; }
  std::size_t workspace() const {
    auto cut = onednn::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut = onednn::Cutter{p.workspace};
    at_      = place(cut);
    p_       = p;
    if (own_ == in_) return;
    x_to_own_ = onednn::reorder(*rt_, in_, p.x, own_, at_.x);
    p_.x      = at_.x;
    if (p.dx == nullptr) return;
    own_to_dx_ = onednn::reorder(*rt_, own_, at_.dx, in_, p.dx);
    p_.dx      = at_.dx;
  }

  void read_from(float const* x) {
    if (x_to_own_) x_to_own_.point(DNNL_ARG_FROM, x);
    else p_.x = const_cast<float*>(x);                                     // only read
  }

  void forward(Pass const& pass) const {
    if (x_to_own_) x_to_own_();
    if (pass.training) measure(pass);
    else for (std::size_t c = 0; c < channels_; ++c) use(c, p_.mean[c], static_cast<double>(p_.variance[c]));
    for (std::size_t c = 0; c < channels_; ++c) at_.scale[c] = p_.kernel[c] * at_.inverse[c];
    std::copy_n(p_.bias, channels_, at_.shift);
    each([&]<std::size_t W>(Lanes<W>, std::size_t channel, std::size_t from) {
      auto const mean = Lanes<W>{at_.mean + channel}, scale = Lanes<W>{at_.scale + channel},
                 shift = Lanes<W>{at_.shift + channel};
      float const* __restrict x = p_.x + from;
      float* __restrict y       = p_.y + from;
      for (std::size_t i = 0; i < order_.pixels; ++i, x += order_.lanes, y += order_.lanes)
        for (std::size_t k = 0; k < W; ++k) y[k] = (x[k] - mean.of[k]) * scale.of[k] + shift.of[k];
    });
  }

  /// dx = scale · (dy - mean of dy - u · mean of dy · u), after a forward in training, with u = (x - mean) / deviation.
  /// The means are over all that is normalized together; gradients of gamma and beta are sums over this share alone.
  void backward(Pass const& pass) const {
    add_up(p_.dy);
    auto const sums = Span<double>{at_.sums, 2 * channels_};
    for (std::size_t c = 0; c < channels_; ++c) {
      sums[channels_ + c] *= static_cast<double>(at_.inverse[c]);
      p_.d_bias[c]   = static_cast<float>(sums[c]);
      p_.d_kernel[c] = static_cast<float>(sums[channels_ + c]);
    }
    if (p_.dx == nullptr) return;
    join(pass, sums);
    for (std::size_t c = 0; c < channels_; ++c) {
      at_.shift[c] = static_cast<float>(sums[c] / at_.count[0]);
      at_.slope[c] = static_cast<float>(sums[channels_ + c] / at_.count[0]) * at_.inverse[c];
    }
    each([&]<std::size_t W>(Lanes<W>, std::size_t channel, std::size_t from) {
      auto const mean = Lanes<W>{at_.mean + channel}, scale = Lanes<W>{at_.scale + channel},
                 shift = Lanes<W>{at_.shift + channel}, slope = Lanes<W>{at_.slope + channel};
      float const* __restrict x  = p_.x + from;
      float const* __restrict dy = p_.dy + from;
      float* __restrict dx       = p_.dx + from;
      for (std::size_t i = 0; i < order_.pixels; ++i, x += order_.lanes, dy += order_.lanes, dx += order_.lanes)
        for (std::size_t k = 0; k < W; ++k)
          dx[k] = scale.of[k] * (dy[k] - shift.of[k] - slope.of[k] * (x[k] - mean.of[k]));
    });
    if (own_to_dx_) own_to_dx_();
  }

 private:
  /// Order of channels in memory: each row has blocks of pixels of lanes. Channel c is lane c % lanes of block
  /// c / lanes; the last block may be padded, with zeros.
  struct Order {
    std::size_t rows, blocks, pixels, lanes;

    std::size_t padded() const { return blocks * lanes; }
  };
  struct Places {
    double *sums, *count;                                                  // 2 C and one, sent together; of all pixels
    float *mean, *inverse, *scale, *shift, *slope;                         // (C), padded; inverse: of the deviation
    float *x, *dx;                                                         // in own_, if that is not in_
  };

  /// W numbers that stay in registers.
  template <std::size_t W>
  struct Lanes {
    float of[W]{};

    Lanes() = default;
    explicit Lanes(float const* from) { std::copy_n(from, W, of); }
  };

  static std::optional<Order> order_of(layout const& l, std::size_t channels) {
    using onednn::tag;
    auto const dims = onednn::dims_of(l);
    auto const is   = [&](tag t) { return l == layout{dims, onednn::f32, t}; };
    auto const rows = static_cast<std::size_t>(dims[0]);
    if (dims.size() == 2) return is(tag::ab) ? std::optional{Order{1, 1, rows, channels}} : std::nullopt;
    auto const pixels = static_cast<std::size_t>(dims[2] * dims[3]);
    if (is(tag::nhwc)) return Order{rows, 1, pixels, channels};
    if (is(tag::nchw)) return Order{rows, channels, pixels, 1};
    if (is(tag::nChw8c)) return Order{rows, (channels + 7) / 8, pixels, 8};
    if (is(tag::nChw16c)) return Order{rows, (channels + 15) / 16, pixels, 16};
    return std::nullopt;
  }

  Places place(onednn::Cutter& cut) const {
    auto const n       = order_.padded();
    auto const doubles = [&](std::size_t m) { return reinterpret_cast<double*>(cut.take_bytes(m * sizeof(double))); };
    auto at  = Places{};
    at.sums  = doubles(2 * n + 1);
    at.count = doubles(1);
    for (auto* some : {&at.mean, &at.inverse, &at.scale, &at.shift, &at.slope}) *some = cut.take_floats(n);
    if (own_ != in_) at.x = cut.take(own_), at.dx = cut.take(own_);
    return at;
  }

  void join(Pass const& pass, Span<double> sums) const {
    (over_ == Normalize::over_batch ? pass.together : pass.share)(sums);
  }

  /// Computes mean and variance of all that is normalized together.
  void measure(Pass const& pass) const {
    std::fill_n(at_.mean, channels_, 0.0F);
    add_up(p_.x);                                                          // of x, and of x · x
    auto const sums = Span<double>{at_.sums, 2 * channels_ + 1};
    sums.back()     = static_cast<double>(order_.rows * order_.pixels);
    join(pass, sums);
    at_.count[0]    = sums.back();
    auto const rows = static_cast<float>(onednn::dims_of(own_)[0]);
    for (std::size_t c = 0; c < channels_; ++c) {
      auto const mean     = sums[c] / sums.back();
      auto const variance = std::max(0.0, sums[channels_ + c] / sums.back() - mean * mean);
      use(c, static_cast<float>(mean), variance);
      p_.d_mean[c]     = static_cast<float>(mean) * rows;
      p_.d_variance[c] = static_cast<float>(variance) * rows;
    }
  }

  void use(std::size_t channel, float mean, double variance) const {
    at_.mean[channel]    = mean;
    at_.inverse[channel] = static_cast<float>(1.0 / std::sqrt(variance + epsilon_));
  }

  /// Computes for each channel the sums of v, and then of v · (x - mean).
  void add_up(float const* values) const {
    auto const n = order_.padded();
    std::fill_n(at_.sums, 2 * n, 0.0);
    each([&]<std::size_t W>(Lanes<W>, std::size_t channel, std::size_t from) {
      auto const mean = Lanes<W>{at_.mean + channel};
      double plain[W]{}, times[W]{};
      float const* v = values + from;
      float const* x = p_.x + from;
      for (std::size_t i = 0; i < order_.pixels; ++i, v += order_.lanes, x += order_.lanes)
        for (std::size_t k = 0; k < W; ++k) {
          plain[k] += static_cast<double>(v[k]);
          times[k] += static_cast<double>(v[k]) * static_cast<double>(x[k] - mean.of[k]);
        }
      for (std::size_t k = 0; k < W; ++k) {
        at_.sums[channel + k] += plain[k];
        at_.sums[n + channel + k] += times[k];
      }
    });
    std::copy_n(at_.sums + n, channels_, at_.sums + channels_);            // without padding, in which layouts differ
  }

  /// Calls f(Lanes<W>, first channel, offset in memory) for W lanes at a time of each block of each row.
  template <class F>
  void each(F&& f) const {
    for (std::size_t r = 0; r < order_.rows; ++r)
      for (std::size_t b = 0; b < order_.blocks; ++b) {
        auto const channel = b * order_.lanes, from = (r * order_.blocks + b) * order_.pixels * order_.lanes;
        auto k = std::size_t{0};
        for (; k + 16 <= order_.lanes; k += 16) f(Lanes<16>{}, channel + k, from + k);
        for (; k + 8 <= order_.lanes; k += 8) f(Lanes<8>{}, channel + k, from + k);
        for (; k < order_.lanes; ++k) f(Lanes<1>{}, channel + k, from + k);
      }
  }

  runtime* rt_;
  layout in_, own_;
  std::size_t channels_;
  double epsilon_;
  Normalize over_;
  Order order_{};
  Places at_{};
  Ports p_{};
  onednn::Call x_to_own_, own_to_dx_;
};

}  // namespace chorale
