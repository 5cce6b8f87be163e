// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layer.hpp>

namespace chorale::nn {

/// In training, sets Percent % of x to zero and scales the rest so that the mean stays; else y = x.
///
/// order   what is dropped is a function of (seed, step, row of the global batch): the same under any number of
///         replicas
/// source  tf.keras.layers.Dropout(Percent / 100)
template <int Percent>
struct Dropout : Layer<Dropout<Percent>> {
  static constexpr std::string_view name = "dropout";

  template <class In>
  static constexpr void check() {
    static_assert(Percent >= 0 && Percent < 100, "chorale: Dropout<Percent> drops 0 to 99 percent");
  }

  template <class In>
  using apply = SameShape<In>;

  template <class D, class In>
  class stage {
   public:
    static constexpr bool overwrites = true, keeps_y = false;

    explicit stage(Site<D> const& site)
        : in_{site.in}, rows_{static_cast<std::size_t>(site.rows)}, stream_{static_cast<std::uint64_t>(site.layer)} {}

    auto        out() const { return in_; }
    std::size_t workspace() const { return 0; }
    void bind(Ports const& p) { at_ = p; }
    void read_from(float const* x) { at_.x = const_cast<float*>(x); }      // only read: y is another buffer then

    void forward(Pass const& pass) const {
      if (at_.y != at_.x) Kernels<D>::copy(in_, at_.x, at_.y);
      drop(at_.y, pass);
    }
    void backward(Pass const& pass) const {
      if (at_.dx == nullptr) return;
      if (at_.dx != at_.dy) Kernels<D>::copy(in_, at_.dy, at_.dx);
      drop(at_.dx, pass);                                                  // the same mask again
    }

   private:
    void drop(float* x, Pass const& pass) const {
      if (pass.training && Percent > 0)
        Kernels<D>::dropout(rows_, in_, x, static_cast<float>(Percent) / 100.0F, pass, stream_);
    }

    typename Kernels<D>::layout in_;
    std::size_t rows_;
    std::uint64_t stream_;
    Ports at_;
  };
};

}  // namespace chorale::nn
