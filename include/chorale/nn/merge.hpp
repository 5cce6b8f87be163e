// SPDX-License-Identifier: Apache-2.0
//
// Layers with several inputs and no variables: a + b, a - b, a * b, concatenate.
#pragma once

#include <chorale/nn/host_layer.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// y = a + b, of one shape. In a network: a + b. The gradient by each is dy.
struct Add : Layer<Add> {
  static constexpr std::string_view name = "add";
  static constexpr bool keeps_x = false, passes = true, overwrites = true;         // dx is dy, for both inputs
  static constexpr bool each_position    = true;

  template <class A, class B>
  static constexpr void check() {
    static_assert(std::is_same_v<A, B>, "chorale: + adds values of one shape");
    static_assert(std::is_same_v<typename A::type, float>, "chorale: + adds numbers, not ids");
  }
  template <int... D>
  static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

  // Of ragged values. All others are summed by a kernel, in the layout of a.
  static void forward(auto& at) {
    auto const [a, b] = at.in;
    for (std::size_t i = 0; i < a.size(); ++i) at.y()[i] = a[i] + b[i];
  }
  static void backward(auto&) {}                                           // never called, as dx is dy
};

/// y = a - b, of one shape. In a network: a - b.
struct Subtract : Layer<Subtract> {
  static constexpr std::string_view name = "subtract";
  static constexpr bool each_position    = true;
  static constexpr bool keeps_x          = false;

  template <class A, class B>
  static constexpr void check() {
    static_assert(std::is_same_v<A, B>, "chorale: - subtracts values of one shape");
    static_assert(std::is_same_v<typename A::type, float>, "chorale: - subtracts numbers, not ids");
  }
  template <int... D>
  static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

  static void forward(auto& at) {
    auto const [a, b] = at.in;
    for (std::size_t i = 0; i < a.size(); ++i) at.y()[i] = a[i] - b[i];
  }
  static void backward(auto& at) {
    auto const [da, db] = at.d_in;
    for (std::size_t i = 0; i < da.size(); ++i) da[i] += at.dy()[i];
    for (std::size_t i = 0; i < db.size(); ++i) db[i] -= at.dy()[i];
  }
};

/// y = a b, element by element, of one shape. In a network: a * b.
struct Multiply : Layer<Multiply> {
  static constexpr std::string_view name = "multiply";
  static constexpr bool each_position    = true;

  template <class A, class B>
  static constexpr void check() {
    static_assert(std::is_same_v<A, B>, "chorale: * multiplies values of one shape, element by element");
    static_assert(std::is_same_v<typename A::type, float>, "chorale: * multiplies numbers, not ids");
  }
  template <int... D>
  static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

  static void forward(auto& at) {
    auto const [a, b] = at.in;
    for (std::size_t i = 0; i < a.size(); ++i) at.y()[i] = a[i] * b[i];
  }
  static void backward(auto& at) {
    auto const [a, b]   = at.in;
    auto const [da, db] = at.d_in;
    for (std::size_t i = 0; i < da.size(); ++i) da[i] += at.dy()[i] * b[i];
    for (std::size_t i = 0; i < db.size(); ++i) db[i] += at.dy()[i] * a[i];
  }
};

namespace detail {

template <class A, class B>
constexpr bool differ_in_back(A, B) {
  if constexpr (A::rank != B::rank || A::rank == 0 || !std::is_same_v<typename A::type, typename B::type>) return false;
  else return std::equal(A::dims.begin(), A::dims.end() - 1, B::dims.begin());
}

}  // namespace detail

/// Values next to each other along their last dimension, which alone may differ. In a network:
/// nn::concatenate(a, b, ..).
///
/// a, b    (B, .., M), (B, .., N)
/// y       (B, .., M + N)
struct Concatenate : Layer<Concatenate> {
  static constexpr std::string_view name = "concatenate";
  static constexpr bool each_position    = true;
  static constexpr bool keeps_x          = false;

  template <class First, class... O>
  static constexpr bool fits = (detail::differ_in_back(First{}, O{}) && ... && (First::rank > 0));

  template <class First, class... O>
  static constexpr void check() {
    static_assert(fits<First, O...>, "chorale: concatenate takes values that differ in their last dimension alone");
  }
  template <class First, class... O>
    requires fits<First, O...>
  static constexpr auto output(First, O...) { return WithBack<First, (First::back + ... + O::back)>{}; }

  static void forward(auto& at) {
    each(at, [&](auto i, std::size_t n, std::size_t begin, std::size_t width, std::size_t all) {
      auto const x = std::get<i>(at.in);
      for (std::size_t r = 0; r < n; ++r) std::copy_n(&x[r * width], width, &at.y()[r * all + begin]);
    });
  }
  static void backward(auto& at) {
    each(at, [&](auto i, std::size_t n, std::size_t begin, std::size_t width, std::size_t all) {
      auto const d = at.d_in[i];
      for (std::size_t r = 0; r < n && !d.empty(); ++r)
        for (std::size_t c = 0; c < width; ++c) d[r * width + c] += at.dy()[r * all + begin + c];
    });
  }

 private:
  /// Calls f(input, vectors, first column in y, columns, columns of y) for each input.
  template <class L, class... In, class Out, class F>
  static void each(Place<L, detail::List<In...>, detail::List<Out>>& at, F&& f) {
    auto begin = std::size_t{0};
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ([&] {
        auto const width = static_cast<std::size_t>(In::back);
        f(std::integral_constant<std::size_t, I>{}, at.rows * In::vectors, begin, width,
          static_cast<std::size_t>(Out::back));
        begin += width;
      }(), ...);
    }(std::index_sequence_for<In...>{});
  }
};

/// a + b, of one shape
template <class D, class A, class B>
constexpr auto operator+(Tensor<D, A> a, Tensor<D, B> b) { return Add{}(a, b); }
/// a - b, of one shape
template <class D, class A, class B>
constexpr auto operator-(Tensor<D, A> a, Tensor<D, B> b) { return Subtract{}(a, b); }
/// a b, element by element, of one shape
template <class D, class A, class B>
constexpr auto operator*(Tensor<D, A> a, Tensor<D, B> b) { return Multiply{}(a, b); }

/// Values next to each other along their last dimension: (B, .., M) and (B, .., N) give (B, .., M + N).
template <class D, class... O>
constexpr auto concatenate(Tensor<D, O>... x) { return Concatenate{}(x...); }
/// Values of one shape next to each other along their last dimension.
template <class D, class O, std::size_t N>
constexpr auto concatenate(std::array<Tensor<D, O>, N> const& x) { return Concatenate{}(x); }

}  // namespace chorale::nn
