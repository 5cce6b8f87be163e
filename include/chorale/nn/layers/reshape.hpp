// SPDX-License-Identifier: Apache-2.0
//
// Layers that move elements: another shape, another order of dimensions, a part of a dimension.
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace chorale::nn {

/// Gives another shape to the elements of a row, in their order; to the elements of each position, if the value is
/// ragged. In a network: nn::reshape<4, 8>(x).
template <int... To> struct Reshape : Layer<Reshape<To...>> {
  static constexpr std::string_view name = "reshape";
  static constexpr bool overwrites = true, keeps_x = false, each_position = true;

  static constexpr std::size_t size = (std::size_t{1} * ... * static_cast<std::size_t>(To));

  template <class X> static constexpr void check() {
    static_assert(X::size == size,
                  "chorale: reshape<dims...> gives as many elements as it takes; the product of the "
                  "dimensions differs");
  }
  template <class T, int... From> requires(Of<T, From...>::size == size) static constexpr auto output(Of<T, From...>) {
    return Of<T, To...>{};
  }

  static void forward(auto& at) {
    if (at.x().data() != at.y().data()) std::copy(at.x().begin(), at.x().end(), at.y().begin());
  }
  static void backward(auto& at) {
    if (at.dx().data() != at.dy().data()) std::copy_n(at.dy().begin(), at.dx().size(), at.dx().begin());
  }
};

/// The dimensions of a row in another order: dimension i of y is dimension Axes[i] of x. In a network:
/// nn::permute<1, 0>(x).
///
/// source    tf.keras.layers.Permute, with axes counted from 0
template <int... Axes> struct Permute : Layer<Permute<Axes...>> {
  static constexpr std::string_view name = "permute";
  static constexpr bool keeps_x          = false;
  static constexpr std::size_t rank      = sizeof...(Axes);
  static constexpr std::array<std::size_t, rank> axes{static_cast<std::size_t>(Axes)...};

  static constexpr bool each_once = [] {
    for (std::size_t a = 0; a < rank; ++a)
      if (std::count(axes.begin(), axes.end(), a) != 1) return false;
    return true;
  }();

  template <class X> static constexpr void check() {
    static_assert(each_once && X::rank == static_cast<int>(rank),
                  "chorale: permute<axes...> takes each dimension of a row once, counted from 0");
  }
  template <class T, int... D> requires(each_once && sizeof...(D) == rank) static constexpr auto output(Of<T, D...>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      constexpr auto d = std::array<int, rank>{D...};
      return Of<T, d[axes[I]]...>{};
    }(std::make_index_sequence<rank>{});
  }

  static void forward(auto& at) {
    each(at, [&](std::size_t from, std::size_t to) { at.y()[to] = at.x()[from]; });
  }
  static void backward(auto& at) {
    if (!at.dx().empty()) each(at, [&](std::size_t from, std::size_t to) { at.dx()[from] += at.dy()[to]; });
  }

 private:
  template <class L, class In, class Out, class F>
  static void each(Place<L, detail::List<In>, detail::List<Out>>& at, F&& f) {
    auto step = std::array<std::size_t, rank>{};  // in x, of each dimension of y
    for (std::size_t i = 0; i < rank; ++i) {
      step[i] = 1;
      for (std::size_t k = axes[i] + 1; k < rank; ++k) step[i] *= static_cast<std::size_t>(In::dims[k]);
    }
    for (std::size_t to = 0; to < at.rows * Out::size; ++to) {
      auto rest = to % Out::size, from = to / Out::size * Out::size;
      for (std::size_t i = rank; i-- > 0; rest /= static_cast<std::size_t>(Out::dims[i]))
        from += rest % static_cast<std::size_t>(Out::dims[i]) * step[i];
      f(from, to);
    }
  }
};

/// Elements [Begin, End) of dimension Axis, counted from 0; -1 is the last dimension. In a network: nn::slice<2, 5>(x).
template <int Begin, int End, int Axis = -1> struct Slice : Layer<Slice<Begin, End, Axis>> {
  static constexpr std::string_view name = "slice";
  static constexpr bool each_position    = Axis < 0;  // of the dimensions after a ragged one
  static constexpr bool keeps_x          = false;

  template <class X> static constexpr std::size_t axis = static_cast<std::size_t>(Axis < 0 ? X::rank + Axis : Axis);
  template <class X>
  static constexpr bool fits = [] {
    if constexpr (axis<X> >= X::dims.size()) return false;
    else return 0 <= Begin && Begin < End && End <= X::dims[axis<X>];
  }();

  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: slice<begin, end, axis> takes a part of one dimension: 0 <= begin < end <= size");
  }
  template <class T, int... D> requires fits<Of<T, D...>> static constexpr auto output(Of<T, D...>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return Of<T, (I == axis<Of<T, D...>> ? End - Begin : D)...>{};
    }(std::make_index_sequence<sizeof...(D)>{});
  }

  static void forward(auto& at) {
    each(at, [&](std::size_t from, std::size_t to, std::size_t n) { std::copy_n(&at.x()[from], n, &at.y()[to]); });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each(at, [&](std::size_t from, std::size_t to, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) at.dx()[from + i] += at.dy()[to + i];
    });
  }

 private:
  /// Calls f(first in x, first in y, number) for each run of neighbours.
  template <class L, class In, class Out, class F>
  static void each(Place<L, detail::List<In>, detail::List<Out>>& at, F&& f) {
    auto inner = std::size_t{1};
    for (std::size_t k = axis<In> + 1; k < In::dims.size(); ++k) inner *= static_cast<std::size_t>(In::dims[k]);
    auto const wide = static_cast<std::size_t>(In::dims[axis<In>]) * inner;
    auto const part = static_cast<std::size_t>(End - Begin) * inner;
    for (std::size_t r = 0; r < at.rows * In::size / wide; ++r)
      f(r * wide + static_cast<std::size_t>(Begin) * inner, r * part, part);
  }
};

/// The elements of each row in shape (To...), in their order.
template <int... To, class D, class O> constexpr auto reshape(Tensor<D, O> x) { return Reshape<To...>{}(x); }

/// The dimensions of each row in another order, counted from 0: permute<1, 0>(x) is the transpose.
template <int... Axes, class D, class O> constexpr auto permute(Tensor<D, O> x) { return Permute<Axes...>{}(x); }

/// Elements [Begin, End) of one dimension of each row, the last unless Axis says another.
template <int Begin, int End, int Axis = -1, class D, class O> constexpr auto slice(Tensor<D, O> x) {
  if constexpr (O::is_ragged && Axis > 0) return Slice<Begin, End, Axis - O::rank>{}(x);
  else return Slice<Begin, End, Axis>{}(x);
}

}  // namespace chorale::nn
