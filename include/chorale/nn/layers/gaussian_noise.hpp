// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/fraction.hpp>
#include <chorale/core/random.hpp>
#include <chorale/device/device.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale::nn {

/// In training, adds to each number a normal one with mean 0 and standard deviation Deviation; else y = x.
///
/// Deviation   GaussianNoise<0.1>, or in percent, GaussianNoise<10>
/// order   what is added is a function of (seed, step, row of the global batch): equal under any number of replicas
/// source  tf.keras.layers.GaussianNoise(Deviation)
template <Fraction Deviation> struct GaussianNoise : Layer<GaussianNoise<Deviation>> {
  static constexpr std::string_view name = "gaussian_noise";

  static std::string text() { return "GaussianNoise<" + Deviation.text() + ">"; }

  template <class In> static constexpr void check() {
    static_assert(Deviation.value >= 0, "chorale: GaussianNoise<Deviation> needs a standard deviation of at least 0");
  }

  template <class In> using apply = SameShape<In>;

  template <class D> static constexpr bool check_device() {
    constexpr bool fits = D::memory == Memory::host;
    static_assert(fits, "chorale: nn::GaussianNoise has no kernels for this device. Use a strategy over Cpu");
    return fits;
  }

  template <class D, class In> class stage {
   public:
    static constexpr bool overwrites = true, keeps_y = false;

    explicit stage(Site<D> const& site)
        : in_{site.in}, lie_{site.in}, rows_{static_cast<std::size_t>(site.rows)},
          stream_{static_cast<std::uint64_t>(site.layer)} {}

    auto out() const { return in_; }
    std::size_t workspace() const { return 0; }
    bool reads_workspace() const { return false; }
    void bind(Ports const& p) { at_ = p; }
    void read_from(float const* x) { at_.x = const_cast<float*>(x); }  // only read: y is another buffer then

    void forward(Pass const& pass) const {
      if (at_.y != at_.x) Kernels<D>::copy(in_, at_.x, at_.y);
      if (!pass.training || Deviation.value == 0) return;
      auto const random = Random{pass.now.drawn(), stream_};
      auto const width  = lie_.width();
      for (std::size_t r = 0; r < rows_; ++r)
        for (std::size_t i = 0; i < width; ++i)
          at_.y[lie_(r, i)] += deviation * random.normal((pass.now.first_row + r) * width + i);
    }
    void backward(Pass const&) const {
      if (at_.dx != nullptr && at_.dx != at_.dy) Kernels<D>::copy(in_, at_.dy, at_.dx);
    }

   private:
    static constexpr float deviation = Deviation.as_float();

    typename Kernels<D>::layout in_;
    typename Kernels<D>::Places lie_;
    std::size_t rows_;
    std::uint64_t stream_;
    Ports at_;
  };
};

}  // namespace chorale::nn
