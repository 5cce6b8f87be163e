// SPDX-License-Identifier: Apache-2.0
//
// Layers with several inputs and no variables: a + b, a - b, a * b, maximum, minimum, average, dot, concatenate.
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

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
  static constexpr bool keeps_x = false, passes = true, overwrites = true;  // dx is dy, for both inputs
  static constexpr bool each_position = true, each_element = true;

  template <class A, class B> static constexpr void check() {
    static_assert(std::is_same_v<A, B>, "chorale: + adds values of one shape");
    static_assert(std::is_same_v<typename A::type, float>, "chorale: + adds numbers, not ids");
  }
  template <int... D> static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

  // Ragged values are summed here; a kernel sums all others, in the layout of a.
  static void forward(auto& at) {
    auto const [a, b] = at.in;
    for (std::size_t i = 0; i < a.size(); ++i) at.y()[i] = a[i] + b[i];
  }
  static void backward(auto&) {}  // never called, as dx is dy
};

/// y = a - b, of one shape. In a network: a - b.
struct Subtract : Layer<Subtract> {
  static constexpr std::string_view name = "subtract";
  static constexpr bool each_position = true, each_element = true;
  static constexpr bool keeps_x = false;

  template <class A, class B> static constexpr void check() {
    static_assert(std::is_same_v<A, B>, "chorale: - subtracts values of one shape");
    static_assert(std::is_same_v<typename A::type, float>, "chorale: - subtracts numbers, not ids");
  }
  template <int... D> static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

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
  static constexpr bool each_position = true, each_element = true;

  template <class A, class B> static constexpr void check() {
    static_assert(std::is_same_v<A, B>, "chorale: * multiplies values of one shape, element by element");
    static_assert(std::is_same_v<typename A::type, float>, "chorale: * multiplies numbers, not ids");
  }
  template <int... D> static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

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

/// Base of the layers that take one of two numbers: a where L::takes_first(a, b), else b.
template <class L> struct OneOfTwo : Layer<L> {
  template <class A, class B> static constexpr void check() {
    static_assert(std::is_same_v<A, B> && std::is_same_v<typename A::type, float>,
                  "chorale: maximum and minimum take numbers of one shape");
  }
  template <int... D> static constexpr auto output(Of<float, D...> a, Of<float, D...>) { return a; }

  static void forward(auto& at) {
    auto const [a, b] = at.in;
    for (std::size_t i = 0; i < a.size(); ++i) at.y()[i] = L::takes_first(a[i], b[i]) ? a[i] : b[i];
  }
  static void backward(auto& at) {
    auto const [a, b]   = at.in;
    auto const [da, db] = at.d_in;
    for (std::size_t i = 0; i < da.size(); ++i) da[i] += L::takes_first(a[i], b[i]) ? at.dy()[i] : 0.0F;
    for (std::size_t i = 0; i < db.size(); ++i) db[i] += L::takes_first(a[i], b[i]) ? 0.0F : at.dy()[i];
  }
};

}  // namespace detail

/// y = the larger of a and b, element by element, of one shape. Of equal ones a has the gradient. In a network:
/// nn::maximum(a, b).
///
/// source    tf.keras.layers.Maximum
struct Maximum : detail::OneOfTwo<Maximum> {
  static constexpr std::string_view name = "maximum";
  static constexpr bool takes_first(float a, float b) { return a >= b; }
};
/// y = the smaller of a and b, element by element, of one shape. Of equal ones a has the gradient. In a network:
/// nn::minimum(a, b).
///
/// source    tf.keras.layers.Minimum
struct Minimum : detail::OneOfTwo<Minimum> {
  static constexpr std::string_view name = "minimum";
  static constexpr bool takes_first(float a, float b) { return a <= b; }
};

/// y = the mean of values of one shape, element by element. In a network: nn::average(a, b, ..).
///
/// source    tf.keras.layers.Average
struct Average : Layer<Average> {
  static constexpr std::string_view name = "average";
  static constexpr bool keeps_x          = false;

  template <class First, class... O>
  static constexpr bool fits = std::is_same_v<typename First::type, float> && (std::is_same_v<First, O> && ...);

  template <class... O> static constexpr void check() {
    static_assert(fits<O...>, "chorale: average takes numbers of one shape");
  }
  template <class First, class... O> requires fits<First, O...> static constexpr auto output(First first, O...) {
    return first;
  }

  static void forward(auto& at) {
    auto const n = static_cast<float>(at.d_in.size());
    std::copy(at.x().begin(), at.x().end(), at.y().begin());
    auto const add = [&](auto x) {
      for (std::size_t i = 0; i < x.size(); ++i) at.y()[i] += x[i];
    };
    std::apply([&](auto, auto... others) { (add(others), ...); }, at.in);
    for (auto& y : at.y()) y /= n;
  }
  static void backward(auto& at) {
    for (auto const d : at.d_in)
      for (std::size_t i = 0; i < d.size(); ++i) d[i] += at.dy()[i] / static_cast<float>(at.d_in.size());
  }
};

/// y = the sum over the last dimension of a times b. In a network: nn::dot(a, b).
///
/// a, b      (B, K) and (B, K), or (B, M, K) and (B, N, K)
/// y         (B, 1), or (B, M, N): each vector of a with each of b
/// source    tf.keras.layers.Dot(axes=-1)
struct Dot : Layer<Dot> {
  static constexpr std::string_view name = "dot";

  template <class A, class B>
  static constexpr bool fits = std::is_same_v<typename A::type, float> && std::is_same_v<typename B::type, float> &&
                               A::rank == B::rank && (A::rank == 1 || A::rank == 2) && A::back == B::back;

  template <class A, class B> static constexpr void check() {
    static_assert(fits<A, B>,
                  "chorale: dot takes vectors (B, K) and (B, K), or (B, M, K) and (B, N, K), of one length K");
  }
  template <class A, class B> requires fits<A, B> static constexpr auto output(A, B) {
    if constexpr (A::rank == 1) return Of<float, 1>{};
    else return Of<float, static_cast<int>(A::vectors), static_cast<int>(B::vectors)>{};
  }
  template <class A, class B> static constexpr std::size_t products(A, B) { return A::size * B::vectors; }

  template <class L, class A, class B, class Out> static void forward(Place<L, detail::List<A, B>, Out>& at) {
    auto const [a, b] = at.in;
    for (std::size_t r = 0; r < at.rows; ++r)
      cpu::matmul(A::vectors, B::vectors, A::back, {&a[r * A::size], A::back}, {&b[r * B::size], B::back, true},
                  {&at.y()[r * A::vectors * B::vectors], B::vectors});
  }
  template <class L, class A, class B, class Out> static void backward(Place<L, detail::List<A, B>, Out>& at) {
    constexpr std::size_t m = A::vectors, n = B::vectors, k = A::back;
    auto const [a, b]   = at.in;
    auto const [da, db] = at.d_in;
    for (std::size_t r = 0; r < at.rows; ++r) {
      auto const* const dy = &at.dy()[r * m * n];
      if (!da.empty())
        cpu::matmul(m, k, n, {dy, n}, {&b[r * n * k], k}, {.data = &da[r * m * k], .stride = k, .beta = 1});
      if (!db.empty())
        cpu::matmul(n, k, m, {dy, n, true}, {&a[r * m * k], k}, {.data = &db[r * n * k], .stride = k, .beta = 1});
    }
  }
};

namespace detail {

template <class A, class B> constexpr bool differ_in_back(A, B) {
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

  template <class First, class... O> static constexpr void check() {
    static_assert(fits<First, O...>, "chorale: concatenate takes values that differ in their last dimension alone");
  }
  template <class First, class... O> requires fits<First, O...> static constexpr auto output(First, O...) {
    return WithBack<First, (First::back + ... + O::back)>{};
  }

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
      (
          [&] {
            auto const width = static_cast<std::size_t>(In::back);
            f(std::integral_constant<std::size_t, I>{}, at.rows * In::vectors, begin, width,
              static_cast<std::size_t>(Out::back));
            begin += width;
          }(),
          ...);
    }(std::index_sequence_for<In...>{});
  }
};

/// a + b, of one shape
template <class D, class A, class B> constexpr auto operator+(Tensor<D, A> a, Tensor<D, B> b) { return Add{}(a, b); }
/// a - b, of one shape
template <class D, class A, class B> constexpr auto operator-(Tensor<D, A> a, Tensor<D, B> b) {
  return Subtract{}(a, b);
}
/// a b, element by element, of one shape
template <class D, class A, class B> constexpr auto operator*(Tensor<D, A> a, Tensor<D, B> b) {
  return Multiply{}(a, b);
}

/// The larger of a and b, element by element, of one shape
template <class D, class A, class B> constexpr auto maximum(Tensor<D, A> a, Tensor<D, B> b) { return Maximum{}(a, b); }
/// The smaller of a and b, element by element, of one shape
template <class D, class A, class B> constexpr auto minimum(Tensor<D, A> a, Tensor<D, B> b) { return Minimum{}(a, b); }
/// The mean of values of one shape, element by element
template <class D, class... O> constexpr auto average(Tensor<D, O>... x) { return Average{}(x...); }
/// The sum over the last dimension of a times b: (B, K) and (B, K) give (B, 1); (B, M, K) and (B, N, K) give (B, M, N).
template <class D, class A, class B> constexpr auto dot(Tensor<D, A> a, Tensor<D, B> b) { return Dot{}(a, b); }

/// Values next to each other along their last dimension: (B, .., M) and (B, .., N) give (B, .., M + N).
template <class D, class... O> constexpr auto concatenate(Tensor<D, O>... x) { return Concatenate{}(x...); }
/// Values of one shape next to each other along their last dimension.
template <class D, class O, std::size_t N> constexpr auto concatenate(std::array<Tensor<D, O>, N> const& x) {
  return Concatenate{}(x);
}

}  // namespace chorale::nn
