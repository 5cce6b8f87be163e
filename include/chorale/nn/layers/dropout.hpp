// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/fraction.hpp>
#include <chorale/core/random.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale::nn {

namespace detail {

/// Dropout of ragged values: what is dropped of a row does not depend on the rows before it.
template <Fraction Rate> struct RaggedDropout : Layer<RaggedDropout<Rate>> {
  static constexpr std::string_view name = "dropout";
  static constexpr bool keeps_x = false, reads_lengths = true;

  template <int... D> static constexpr auto output(Of<float, D...> x) { return x; }

  static void forward(auto& at) {
    if (!at.training) std::copy(at.x().begin(), at.x().end(), at.y().begin());
    each_number(at, [&](std::size_t i, float factor) { at.y()[i] = factor == 0 ? 0.0F : at.x()[i] * factor; });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    if (!at.training) std::copy(at.dy().begin(), at.dy().end(), at.dx().begin());
    each_number(at, [&](std::size_t i, float factor) { at.dx()[i] = factor == 0 ? 0.0F : at.dy()[i] * factor; });
  }

 private:
  /// In training, calls f(i, factor) for each number i.
  template <class L, int... D, class Out, class F>
  static void each_number(Place<L, List<Of<float, D...>>, Out>& at, F&& f) {
    if (!at.training) return;
    constexpr auto size  = Of<float, D...>::size;  // of a position
    constexpr auto limit = static_cast<std::uint32_t>(Rate.value * 4294967296.0);
    constexpr auto scale = 1.0F / (1.0F - Rate.as_float());
    auto const random    = Random{at.now.drawn(), at.call};
    at.each_row([&](std::size_t r, std::size_t first, std::size_t n) {
      for (std::size_t i = 0; i < n * size; i += 4) {  // Philox gives four words at a time
        auto const words = random.words((static_cast<std::uint64_t>(at.now.first_row + r) << 32) + i / 4);
        for (std::size_t k = 0; k < std::min<std::size_t>(4, n * size - i); ++k)
          f(first * size + i + k, words[k] < limit ? 0.0F : scale);
      }
    });
  }
};

}  // namespace detail

/// In training, sets a part of x to zero and scales the rest so that the mean stays; else y = x.
///
/// Rate    of what is dropped: Dropout<0.5>, or in percent, Dropout<50>
/// order   what is dropped is a function of (seed, step, row of the global batch): the same under any number of
///         replicas, and of ragged values whatever the lengths of other rows
/// source  tf.keras.layers.Dropout(Rate)
template <Fraction Rate> struct Dropout : Layer<Dropout<Rate>> {
  static constexpr std::string_view name = "dropout";

  static std::string text() { return "Dropout<" + Rate.text() + ">"; }

  using Layer<Dropout>::operator();
  template <class D, class O> requires O::is_ragged constexpr auto operator()(Tensor<D, O> x) const {
    return graph::call<D, detail::RaggedDropout<Rate>>(this->id(), this->name_, x);
  }

  template <class In> static constexpr void check() {
    static_assert(Rate.value >= 0 && Rate.value < 1,
                  "chorale: Dropout<Rate> needs at least 0 and less than 1. Write Dropout<0.5>, or in percent "
                  "Dropout<50>");
  }

  template <class In> using apply = SameShape<In>;

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
      drop(at_.y, pass);
    }
    void backward(Pass const& pass) const {
      if (at_.dx == nullptr) return;
      if (at_.dx != at_.dy) Kernels<D>::copy(in_, at_.dy, at_.dx);
      drop(at_.dx, pass);  // the same mask again
    }

   private:
    void drop(float* x, Pass const& pass) const {
      if (pass.training && Rate.value > 0) Kernels<D>::dropout(rows_, lie_, x, Rate.as_float(), pass, stream_);
    }

    typename Kernels<D>::layout in_;
    typename Kernels<D>::Places lie_;
    std::size_t rows_;
    std::uint64_t stream_;
    Ports at_;
  };
};

}  // namespace chorale::nn
