// SPDX-License-Identifier: Apache-2.0
//
// Layers for values that are carried with derivatives, as nn::derivatives makes them, each with its own backward.
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <numbers>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn::detail {

/// A smooth function of a number: at(x) is f, f', f'' and f''' at x.
template <class L> struct Smooth;
// y = tanh(x)
template <> struct Smooth<Tanh> {
  static std::array<float, 4> at(float x) {
    auto const y = cpu::tanh(x), d = 1 - y * y;
    return {y, d, -2 * y * d, d * (6 * y * y - 2)};
  }
};
// y = 1 / (1 + exp(-x))
template <> struct Smooth<Sigmoid> {
  static std::array<float, 4> at(float x) {
    auto const y = cpu::sigmoid(x), d = y * (1 - y);
    return {y, d, d * (1 - 2 * y), d * (1 - 6 * d)};
  }
};
// y = log(1 + exp(x)), whose derivative is a sigmoid
template <> struct Smooth<Softplus> {
  static std::array<float, 4> at(float x) {
    auto const [s, d, d2, d3] = Smooth<Sigmoid>::at(x);
    return {std::max(x, 0.0F) + std::log1p(cpu::exp(-std::abs(x))), s, d, d2};
  }
};
// y = x sigmoid(x)
template <> struct Smooth<SiLU> {
  static std::array<float, 4> at(float x) {
    auto const [s, d, d2, d3] = Smooth<Sigmoid>::at(x);
    return {x * s, s + x * d, 2 * d + x * d2, 3 * d2 + x * d3};
  }
};
// y = x times the normal distribution, whose derivative is the density
template <> struct Smooth<GELU> {
  static std::array<float, 4> at(float x) {
    auto const below   = 0.5F * (1 + std::erf(x * std::numbers::sqrt2_v<float> / 2));
    auto const density = cpu::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
    return {x * below, below + x * density, density * (2 - x * x), density * x * (x * x - 4)};
  }
};
// A function that the program defines
template <class L> requires std::derived_from<L, nn::Elementwise<L>> &&
                            requires(float x) { L::d2f(x, x), L::d3f(x, x); } struct Smooth<L> {
  static std::array<float, 4> at(float x) {
    auto const y = L::f(x);
    return {y, L::df(x, y), L::d2f(x, y), L::d3f(x, y)};
  }
};

template <class L> concept IsSmooth = requires(float x) { Smooth<L>::at(x); };

}  // namespace chorale::nn::detail

namespace chorale::nn {

namespace detail {

/// The value itself, its derivative by number i of the input, or by i and j, where i <= j.
struct DerivativePart {
  int i = -1, j = -1;

  constexpr bool operator==(DerivativePart const&) const = default;
};

/// The parts of a value that is carried with derivatives B: itself, first derivatives, then second ones. A second
/// derivative needs both first ones.
template <class... B> struct PartsOf {
 private:
  static constexpr DerivativePart part_of(auto const& dims) {
    if (dims.size() == 1) return {dims[0], -1};
    return {std::min(dims[0], dims[dims.size() - 1]), std::max(dims[0], dims[dims.size() - 1])};
  }
  struct List {
    std::array<DerivativePart, 1 + 3 * sizeof...(B)> all{};
    std::size_t size = 1;

    constexpr void add(DerivativePart part) {
      for (std::size_t k = 0; k < size; ++k)
        if (all[k] == part) return;
      all[size++] = part;
    }
  };
  static constexpr List list = [] {
    auto made = List{};
    (
        [&] {
          for (auto const i : B::dims) made.add({i, -1});
        }(),
        ...);
    (made.add(part_of(B::dims)), ...);
    return made;
  }();

 public:
  static constexpr std::size_t size = list.size;
  static constexpr DerivativePart part(std::size_t k) { return list.all[k]; }
  /// The index of a part; `size` for a part that is not carried.
  static constexpr std::size_t find(DerivativePart wanted) {
    auto k = std::size_t{0};
    while (k < size && list.all[k] != wanted) ++k;
    return k;
  }
  /// The index of the value, then the indices of the parts that were asked for, in that order.
  static constexpr std::array<std::size_t, 1 + sizeof...(B)> asked{0, find(part_of(B::dims))...};

  /// Calls f(k, a, b) for each derivative: of part k, a is the first derivative by i, and b that by j; in a first
  /// derivative b is 0. All are integral constants.
  static constexpr void each(auto&& f) {
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      (f(std::integral_constant<std::size_t, K + 1>{}, std::integral_constant<std::size_t, find({part(K + 1).i, -1})>{},
         std::integral_constant < std::size_t, part(K + 1).j<0 ? 0 : find({part(K + 1).j, -1})>{}),
       ...);
    }(std::make_index_sequence<size - 1>{});
  }
};

/// Layer L for values with parts S, (B, P, C), part after part. Without a specialisation it has no such form.
template <class L, class S> struct WithDerivatives {
  static constexpr bool missing = true;
};

// y = x W + b: derivatives are multiplied alike, and the bias is none of theirs.
template <int Units, class... Options, class S> struct WithDerivatives<Dense<Units, Options...>, S> {
  using Plain                            = Dense<Units, Options...>;
  static constexpr std::string_view name = Plain::name;

  static std::string text() { return "Derivatives<" + Plain::text() + "," + type_name<S>() + ">"; }
  template <int Parts, int In> static constexpr auto output(Of<float, Parts, In>) { return Of<float, Parts, Units>{}; }
  template <int Parts, int In> static constexpr auto variables(Of<float, Parts, In>) {
    return Plain::template apply<Shape<In>>::variables;
  }
  template <int Parts, int In> static constexpr std::size_t products(Of<float, Parts, In>) {
    return std::size_t{Parts} * In * Units;
  }

  static void forward(auto& at) {
    constexpr std::size_t in = std::remove_reference_t<decltype(at)>::X::back, units = Units;
    cpu::matmul(at.rows * S::size, units, in, {at.x().data(), in}, {at.v[0].data(), units}, {at.y().data(), units});
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t c = 0; c < units; ++c) at.y()[r * S::size * units + c] += at.v[1][c];
  }
  static void backward(auto& at) {
    constexpr std::size_t in = std::remove_reference_t<decltype(at)>::X::back, units = Units;
    auto const vectors   = at.rows * S::size;
    auto const* const dy = at.dy().data();
    cpu::matmul(in, units, vectors, {at.x().data(), in, true}, {dy, units},
                {.data = at.dv[0].data(), .stride = units, .beta = 1});
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t c = 0; c < units; ++c) at.dv[1][c] += dy[r * S::size * units + c];
    if (!at.dx().empty())
      cpu::matmul(vectors, in, units, {dy, units}, {at.v[0].data(), units, true},
                  {.data = at.dx().data(), .stride = in, .beta = 1});
  }
};

// y = f(x):  y_i = f'(x) x_i,  y_ij = f'(x) x_ij + f''(x) x_i x_j
template <IsSmooth L, class S> struct WithDerivatives<L, S> {
  static constexpr std::string_view name = L::name;

  static std::string text() { return "Derivatives<" + chorale::text_of<L>() + "," + type_name<S>() + ">"; }
  template <int Parts, int C> static constexpr auto output(Of<float, Parts, C> x) { return x; }

  static void forward(auto& at) {
    each_vector(at, [&](std::size_t first, std::size_t n, std::size_t width, auto const& f) {
      auto const x = [&](std::size_t part) { return at.x().data() + first + part * width; };
      auto const y = [&](std::size_t part) { return at.y().data() + first + part * width; };
      std::copy_n(f[0].data(), n, y(0));
      S::each([&](auto part, auto i, auto j) {
        auto* const to         = y(part);
        auto const *const from = x(part), *const a = x(i), *const b = x(j);
        for (std::size_t c = 0; c < n; ++c) to[c] = f[1][c] * from[c];
        if constexpr (j > 0)
          for (std::size_t c = 0; c < n; ++c) to[c] += f[2][c] * a[c] * b[c];
      });
    });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each_vector(at, [&](std::size_t first, std::size_t n, std::size_t width, auto const& f) {
      auto const x  = [&](std::size_t part) { return at.x().data() + first + part * width; };
      auto const dx = [&](std::size_t part) { return at.dx().data() + first + part * width; };
      auto const dy = [&](std::size_t part) { return at.dy().data() + first + part * width; };
      for (std::size_t c = 0; c < n; ++c) dx(0)[c] += dy(0)[c] * f[1][c];
      S::each([&](auto part, auto i, auto j) {
        auto const *const from = x(part), *const a = x(i), *const b = x(j), *const d = dy(part);
        for (std::size_t c = 0; c < n; ++c) dx(part)[c] += d[c] * f[1][c];
        for (std::size_t c = 0; c < n; ++c) dx(0)[c] += d[c] * f[2][c] * from[c];
        if constexpr (j > 0) {
          for (std::size_t c = 0; c < n; ++c) dx(0)[c] += d[c] * f[3][c] * a[c] * b[c];
          for (std::size_t c = 0; c < n; ++c) dx(i)[c] += d[c] * f[2][c] * b[c];
          for (std::size_t c = 0; c < n; ++c) dx(j)[c] += d[c] * f[2][c] * a[c];
        }
      });
    });
  }

 private:
  /// Calls run(first, n, width, f) for n neighbours of the value of a row at a time, with f and its derivatives there.
  static void each_vector(auto& at, auto&& run) {
    constexpr std::size_t width = std::remove_reference_t<decltype(at)>::X::back, most = 64;
    auto f = std::array<std::array<float, most>, 4>{};
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t from = 0; from < width; from += most) {
        auto const first = r * S::size * width + from, n = std::min(most, width - from);
        for (std::size_t c = 0; c < n; ++c) {
          auto const all = Smooth<L>::at(at.x()[first + c]);
          for (std::size_t k = 0; k < f.size(); ++k) f[k][c] = all[k];
        }
        run(first, n, width, f);
      }
  }
};

// y = a b:  y_i = a_i b + a b_i,  y_ij = a_ij b + a_i b_j + a_j b_i + a b_ij
template <class S> struct WithDerivatives<Multiply, S> {
  static constexpr std::string_view name = Multiply::name;

  template <class A, class B> static constexpr void check() { Multiply::check<A, B>(); }
  template <int Parts, int C> static constexpr auto output(Of<float, Parts, C> a, Of<float, Parts, C>) { return a; }

  static void forward(auto& at) {
    auto const a = std::get<0>(at.in), b = std::get<1>(at.in);
    std::fill(at.y().begin(), at.y().end(), 0.0F);
    each_term(at, [&](std::size_t to, std::size_t i, std::size_t j) { at.y()[to] += a[i] * b[j]; });
  }
  static void backward(auto& at) {
    auto const a = std::get<0>(at.in), b = std::get<1>(at.in);
    auto const da = at.d_in[0], db = at.d_in[1];
    if (!da.empty()) each_term(at, [&](std::size_t to, std::size_t i, std::size_t j) { da[i] += at.dy()[to] * b[j]; });
    if (!db.empty()) each_term(at, [&](std::size_t to, std::size_t i, std::size_t j) { db[j] += at.dy()[to] * a[i]; });
  }

 private:
  /// Calls term(k, i, j) for each product a[i] b[j] that is added to y[k].
  static void each_term(auto& at, auto&& term) {
    constexpr std::size_t width = std::remove_reference_t<decltype(at)>::X::back;
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t c = 0; c < width; ++c) {
        auto const place = [&](std::size_t part) { return (r * S::size + part) * width + c; };
        term(place(0), place(0), place(0));
        S::each([&](auto part, auto i, auto j) {
          term(place(part), place(part), place(0)), term(place(part), place(0), place(part));
          if constexpr (j > 0) term(place(part), place(i), place(j)), term(place(part), place(j), place(i));
        });
      }
  }
};

// Linear ones treat all parts alike.
template <class S> struct WithDerivatives<Add, S> : Add {};
template <class S> struct WithDerivatives<Subtract, S> : Subtract {};
template <class S> struct WithDerivatives<Average, S> : Average {};
template <class S> struct WithDerivatives<Concatenate, S> : Concatenate {};

/// The input as a value with derivatives: x, with ones and zeros for those by x.
template <class S> struct BeginDerivatives : Layer<BeginDerivatives<S>> {
  static constexpr std::string_view name = "begin_derivatives";
  static constexpr bool keeps_x          = false;

  template <int N> static constexpr auto output(Of<float, N>) { return Of<float, static_cast<int>(S::size), N>{}; }

  static void forward(auto& at) {
    constexpr std::size_t width = std::remove_reference_t<decltype(at)>::X::back;
    std::fill(at.y().begin(), at.y().end(), 0.0F);
    for (std::size_t r = 0; r < at.rows; ++r) {
      auto* const y = at.y().data() + r * S::size * width;
      std::copy_n(at.x().data() + r * width, width, y);
      S::each([&](auto part, auto, auto j) {
        if constexpr (j == 0) y[part * width + static_cast<std::size_t>(S::part(part).i)] = 1;
      });
    }
  }
  static void backward(auto& at) {
    constexpr std::size_t width = std::remove_reference_t<decltype(at)>::X::back;
    for (std::size_t i = 0; i < at.dx().size(); ++i) at.dx()[i] += at.dy()[i / width * S::size * width + i % width];
  }
};

/// The parts that were asked for, each as a separate value.
template <class S> struct EndDerivatives : Layer<EndDerivatives<S>> {
  static constexpr std::string_view name = "end_derivatives";
  static constexpr bool keeps_x          = false;

  template <int Parts, int N> static constexpr auto output(Of<float, Parts, N>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return Several<std::tuple_element_t<0, std::tuple<Of<float, N>, std::integral_constant<std::size_t, I>>>...>{};
    }(std::make_index_sequence<S::asked.size()>{});
  }

  static void forward(auto& at) {
    each(at, [](auto& x, auto& y) { y = x; }, at.x(), at.out);
  }
  static void backward(auto& at) {
    if (!at.dx().empty()) each(at, [](auto& dx, auto& dy) { dx += dy; }, at.dx(), at.d_out);
  }

 private:
  static void each(auto& at, auto&& move, auto const& all, auto const& parts) {
    constexpr std::size_t width = std::remove_reference_t<decltype(at)>::X::back;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (
          [&] {
            for (std::size_t i = 0; i < at.rows * width; ++i)
              move(all[(i / width * S::size + S::asked[I]) * width + i % width], std::get<I>(parts)[i]);
          }(),
          ...);
    }(std::make_index_sequence<S::asked.size()>{});
  }
};

}  // namespace detail

}  // namespace chorale::nn
