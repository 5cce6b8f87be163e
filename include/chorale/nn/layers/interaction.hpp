// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// The product of each two of several vectors: how much features have in common. In a network:
/// nn::interaction(a, b, c, ..).
///
/// a, b, ..   (B, Width) each, at least two
/// y          (B, n (n - 1) / 2): b·a, c·a, c·b, d·a, ..
/// source     Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019
struct Interaction : Layer<Interaction> {
  static constexpr std::string_view name = "interaction";

  template <class First, class... O>
  static constexpr bool fits = sizeof...(O) > 0 && First::rank == 1 && std::is_same_v<typename First::type, float> &&
                               (std::is_same_v<First, O> && ...);

  template <class First, class... O> static constexpr void check() {
    static_assert(fits<First, O...>,
                  "chorale: interaction takes two or more vectors of numbers of one width, (B, width)");
  }
  template <class First, class... O> requires fits<First, O...> static constexpr auto output(First, O...) {
    return Of<float, static_cast<int>(pairs(1 + sizeof...(O)))>{};
  }
  template <class First, class... O> static constexpr std::size_t products(First, O...) {
    return pairs(1 + sizeof...(O)) * First::size;
  }

  static void forward(auto& at) {
    each_pair(
        at,
        [](auto& y, float const* a, float const* b, float*, float*, std::size_t width) {
          y = cpu::sum_of(width, [=](std::size_t i) { return a[i] * b[i]; });
        },
        at.y());
  }
  static void backward(auto& at) {
    each_pair(
        at,
        [](float dy, float const* a, float const* b, float* da, float* db, std::size_t width) {
          for (std::size_t i = 0; i < width && da != nullptr; ++i) da[i] += dy * b[i];
          for (std::size_t i = 0; i < width && db != nullptr; ++i) db[i] += dy * a[i];
        },
        at.dy());
  }

 private:
  static constexpr std::size_t pairs(std::size_t n) { return n * (n - 1) / 2; }

  /// Calls f(number, a, b, da, db, width) for each number of a row's output; da and db are null where nobody asks.
  template <class L, class First, class... O, class Out, class F>
  static void each_pair(Place<L, detail::List<First, O...>, Out>& at, F&& f, Span<float> numbers) {
    constexpr std::size_t n = 1 + sizeof...(O), width = First::size;
    auto const x = std::apply([](auto... in) { return std::array<float const*, n>{in.data()...}; }, at.in);
    auto const d = [&](std::size_t i, std::size_t r) {
      return at.d_in[i].empty() ? nullptr : at.d_in[i].data() + r * width;
    };
    auto* number = numbers.data();
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t i = 1; i < n; ++i)
        for (std::size_t j = 0; j < i; ++j) f(*number++, x[i] + r * width, x[j] + r * width, d(i, r), d(j, r), width);
  }
};

/// The product of each two of several vectors of one width: (B, width) n times gives (B, n (n - 1) / 2).
template <class D, class... O> constexpr auto interaction(Tensor<D, O>... x) { return Interaction{}(x...); }
/// The product of each two of the vectors of an array.
template <class D, class O, std::size_t N> constexpr auto interaction(std::array<Tensor<D, O>, N> const& x) {
  return Interaction{}(x);
}

}  // namespace chorale::nn
