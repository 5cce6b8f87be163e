// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

namespace chorale {

/// y = gamma · (x - mean) / sqrt(variance + epsilon) + beta, for each channel. In training mean and variance are those
/// of this share of the batch, or of the whole batch over all replicas; else the moving ones.
///
/// x, y      (B, H, W, C), in any layout, or (B, C)
/// kernel    gamma (C); bias: beta (C); mean, variance: moving (C), which forward only reads: d_mean and d_variance get
///           the targets that they move towards, times rows
/// cost      in training x is read twice, and x and dy twice more in backward. A ReLU that follows in place is free
/// order     sums are double, over this share in one order: other shares of the same batch give nearly the same bits
/// source    Ioffe & Szegedy, ICML 2015; tf.keras.layers.BatchNormalization: its variance divides by the count
class Kernels<Cpu>::BatchNorm {
 public:
  /// plain     the layout to convert to where order_of() does not know `in`
  BatchNorm(runtime& rt, layout const& in, layout const& plain, int channels, float epsilon, Normalize over)
      : rt_{&rt}, in_{in}, channels_{static_cast<std::size_t>(channels)}, epsilon_{static_cast<double>(epsilon)},
        over_{over} {
    auto const known = order_of(in, channels_);
    own_             = known ? in : plain;
    order_           = known ? *known : *order_of(plain, channels_);
    rows_            = static_cast<float>(onednn::dims_of(own_)[0]);
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
    relu_    = rt_->relus.take(p.y, onednn::Relus::Taken::both);
    if (own_ == in_) return;
    x_to_own_ = onednn::reorder(*rt_, in_, p.x, own_, at_.x);
    p_.x      = at_.x;
    if (p.dx == nullptr) return;
    own_to_dx_ = onednn::reorder(*rt_, own_, at_.dx, in_, p.dx);
    p_.dx      = at_.dx;
  }

  void read_from(float const* x) {
    if (x_to_own_) x_to_own_.point(DNNL_ARG_FROM, x);
    else p_.x = const_cast<float*>(x);  // only read
  }

  void forward(Pass const& pass) const {
    if (x_to_own_) x_to_own_();
    if (pass.training) {
      measure(pass);
    } else {
      for (std::size_t c = 0; c < channels_; ++c) use(c, p_.mean[c], static_cast<double>(p_.variance[c]));
      at_.count[0] = std::numeric_limits<double>::infinity();  // no x changes them: see backward
    }
    for (std::size_t c = 0; c < channels_; ++c) at_.scale[c] = p_.kernel[c] * at_.inverse[c];
    std::copy_n(p_.bias, channels_, at_.beta);
    if (relu_) normalize<true>();
    else normalize<false>();
  }

  /// dx = scale · (dy - mean of dy - u · mean of dy · u), after a forward in training, with u = (x - mean) / deviation;
  /// scale · dy after one with moving statistics. The means are over all that is normalized together; gradients of
  /// gamma and beta are sums over this share alone.
  void backward(Pass const& pass) const {
    if (relu_) add_up<true>(p_.dy);
    else add_up<false>(p_.dy);
    auto const sums = Span<double>{at_.sums, 2 * channels_};
    for (std::size_t c = 0; c < channels_; ++c) {
      sums[channels_ + c] *= static_cast<double>(at_.inverse[c]);
      p_.d_bias[c]   = static_cast<float>(sums[c]);
      p_.d_kernel[c] = static_cast<float>(sums[channels_ + c]);
    }
    if (p_.dx == nullptr) return;
    if (pass.training) join(pass, sums);
    for (std::size_t c = 0; c < channels_; ++c) {
      at_.shift[c] = static_cast<float>(sums[c] / at_.count[0]);
      at_.slope[c] = static_cast<float>(sums[channels_ + c] / at_.count[0]) * at_.inverse[c];
    }
    if (relu_) propagate<true>();
    else propagate<false>();
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
    double *sums, *count;                                  // 2 C and one, sent together; of all pixels
    float *mean, *inverse, *scale, *beta, *shift, *slope;  // (C), padded; inverse: of the deviation
    float *x, *dx;                                         // in own_, if that is not in_
  };

  /// W numbers that stay in registers.
  template <std::size_t W> struct Lanes {
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
    auto at            = Places{};
    at.sums            = doubles(2 * n + 1);
    at.count           = doubles(1);
    for (auto* some : {&at.mean, &at.inverse, &at.scale, &at.beta, &at.shift, &at.slope}) *some = cut.take_floats(n);
    if (own_ != in_) at.x = cut.take(own_), at.dx = cut.take(own_);
    return at;
  }

  void join(Pass const& pass, Span<double> sums) const {
    (over_ == Normalize::over_batch ? pass.together : pass.share)(sums);
  }

  /// Computes mean and variance of all that is normalized together.
  void measure(Pass const& pass) const {
    std::fill_n(at_.mean, channels_, 0.0F);
    add_up<false>(p_.x);  // of x, and of x · x
    auto const sums = Span<double>{at_.sums, 2 * channels_ + 1};
    sums.back()     = static_cast<double>(order_.rows * order_.pixels);
    join(pass, sums);
    at_.count[0] = sums.back();
    for (std::size_t c = 0; c < channels_; ++c) {
      auto const mean     = sums[c] / sums.back();
      auto const variance = std::max(0.0, sums[channels_ + c] / sums.back() - mean * mean);
      use(c, static_cast<float>(mean), variance);
      p_.d_mean[c]     = static_cast<float>(mean) * rows_;
      p_.d_variance[c] = static_cast<float>(variance) * rows_;
    }
  }

  void use(std::size_t channel, float mean, double variance) const {
    at_.mean[channel]    = mean;
    at_.inverse[channel] = static_cast<float>(1.0 / std::sqrt(variance + epsilon_));
  }

  /// For W channels: mean, factor and summand.
  template <std::size_t W> struct Affine {
    Lanes<W> mean, scale, beta;

    Affine(Places const& at, std::size_t channel)
        : mean{at.mean + channel}, scale{at.scale + channel}, beta{at.beta + channel} {}
    float operator()(float x, std::size_t k) const { return (x - mean.of[k]) * scale.of[k] + beta.of[k]; }
  };

  /// Writes y, or, if Relu, max(y, 0). NaN stays.
  template <bool Relu> void normalize() const {
    each([&]<std::size_t W>(Lanes<W>, std::size_t channel, std::size_t from) {
      auto const affine         = Affine<W>{at_, channel};
      float const* __restrict x = p_.x + from;
      float* __restrict y       = p_.y + from;
      for (std::size_t i = 0; i < order_.pixels; ++i, x += order_.lanes, y += order_.lanes)
        for (std::size_t k = 0; k < W; ++k) {
          auto const value = affine(x[k], k);
          y[k]             = Relu && value < 0 ? 0.0F : value;
        }
    });
  }

  /// Writes dx. If Relu, a dy counts only where y is above 0.
  template <bool Relu> void propagate() const {
    each([&]<std::size_t W>(Lanes<W>, std::size_t channel, std::size_t from) {
      auto const affine = Affine<W>{at_, channel};
      auto const shift = Lanes<W>{at_.shift + channel}, slope = Lanes<W>{at_.slope + channel};
      float const* __restrict x  = p_.x + from;
      float const* __restrict dy = p_.dy + from;
      float* __restrict dx       = p_.dx + from;
      for (std::size_t i = 0; i < order_.pixels; ++i, x += order_.lanes, dy += order_.lanes, dx += order_.lanes)
        for (std::size_t k = 0; k < W; ++k) {
          auto const on = Relu ? -static_cast<std::int32_t>(affine(x[k], k) > 0) : -1;  // all bits, or none
          auto const d  = std::bit_cast<float>(std::bit_cast<std::int32_t>(dy[k]) & on);
          dx[k]         = affine.scale.of[k] * (d - shift.of[k] - slope.of[k] * (x[k] - affine.mean.of[k]));
        }
    });
  }

  /// Computes for each channel the sums of v, and then of v · (x - mean). If Relu, a v counts only where y is above 0.
  template <bool Relu> void add_up(float const* values) const {
    auto const n = order_.padded();
    std::fill_n(at_.sums, 2 * n, 0.0);
    each([&]<std::size_t W>(Lanes<W>, std::size_t channel, std::size_t from) {
      auto const affine = Affine<W>{at_, channel};
      double plain[W]{}, times[W]{};
      float const* v = values + from;
      float const* x = p_.x + from;
      if constexpr (W % Four::size == 0) {
        add_up_fours<Relu, W>(affine, v, x, plain, times);
      } else {
        for (std::size_t i = 0; i < order_.pixels; ++i, v += order_.lanes, x += order_.lanes)
          for (std::size_t k = 0; k < W; ++k) {
            auto const one = Relu && !(affine(x[k], k) > 0) ? 0.0F : v[k];
            plain[k] += static_cast<double>(one);
            times[k] += static_cast<double>(one) * static_cast<double>(x[k] - affine.mean.of[k]);
          }
      }
      for (std::size_t k = 0; k < W; ++k) {
        at_.sums[channel + k] += plain[k];
        at_.sums[n + channel + k] += times[k];
      }
    });
    std::copy_n(at_.sums + n, channels_, at_.sums + channels_);  // without padding, in which layouts differ
  }

  /// Four numbers as one value: of loops that add up in double, compilers do not make vector instructions.
  struct Four {
    static constexpr std::size_t size = 4;
    using Floats                      = float __attribute__((vector_size(4 * size)));
    using Ints                        = std::int32_t __attribute__((vector_size(4 * size)));
    using Doubles                     = double __attribute__((vector_size(8 * size)));
  };

  /// The loop of add_up for W channels, with the same bits.
  template <bool Relu, std::size_t W>
  void add_up_fours(Affine<W> const& affine, float const* v, float const* x, double* plain, double* times) const {
    using Floats                 = typename Four::Floats;
    using Ints                   = typename Four::Ints;
    constexpr std::size_t groups = W / Four::size;
    Floats mean[groups], scale[groups], beta[groups];
    typename Four::Doubles sums[groups]{}, products[groups]{};
    std::memcpy(mean, affine.mean.of, sizeof mean);
    std::memcpy(scale, affine.scale.of, sizeof scale);
    std::memcpy(beta, affine.beta.of, sizeof beta);
    for (std::size_t i = 0; i < order_.pixels; ++i, v += order_.lanes, x += order_.lanes)
      for (std::size_t g = 0; g < groups; ++g) {
        Floats one, apart;
        std::memcpy(&one, v + g * Four::size, sizeof one);
        std::memcpy(&apart, x + g * Four::size, sizeof apart);
        apart -= mean[g];
        if constexpr (Relu) {
          auto const on = Ints(apart * scale[g] + beta[g] > 0);  // all bits, where one counts
          one           = std::bit_cast<Floats>(std::bit_cast<Ints>(one) & on);
        }
        auto const precise = __builtin_convertvector(one, typename Four::Doubles);
        sums[g] += precise;
        products[g] += precise * __builtin_convertvector(apart, typename Four::Doubles);
      }
    std::memcpy(plain, sums, sizeof sums);
    std::memcpy(times, products, sizeof products);
  }

  /// Calls f(Lanes<W>, first channel, offset in memory) for W lanes at a time of each block of each row.
  template <class F> void each(F&& f) const {
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
  bool relu_ = false;  // a ReLU that follows in place
  Order order_{};
  float rows_ = 0;  // of the share
  Places at_{};
  Ports p_{};
  onednn::Call x_to_own_, own_to_dx_;
};

}  // namespace chorale
