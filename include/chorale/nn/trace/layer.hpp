// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/shape.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// Base of every layer, which makes it callable in the call operator of a network: y = layer(x), or y = layer(a, b).
///
///   struct Scaled : nn::Layer<Scaled> { ... };     a layer written by hand: see nn::Place
///
/// keeps   an object is one layer: called twice, it uses its variables twice. A temporary is another layer at each
///         call; a layer that is never called has no variables; a layer cannot be copied. Make it a member of the
///         network or a temporary: a `const` local object cannot be marked as called
template <class L> class Layer {
 public:
  constexpr Layer() = default;
  /// Makes a layer whose variables have this name in checkpoints, in place of a numbered one.
  constexpr Layer(char const* name) : name_{name} {}
  Layer(Layer const&)            = delete;  // would its variables be others?
  Layer& operator=(Layer const&) = delete;

  template <class D, class... O> requires(sizeof...(O) > 0) constexpr auto operator()(Tensor<D, O>... x) const {
    return graph::call<D, L>(id(), name_, x...);
  }

  /// Calls the layer with several inputs of one shape.
  template <class D, class O, std::size_t N> constexpr auto operator()(std::array<Tensor<D, O>, N> const& x) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return (*this)(x[I]...); }(std::make_index_sequence<N>{});
  }

 protected:
  constexpr int& id() const { return const_cast<Layer*>(this)->id_; }  // g++ 12: no mutable member in a constant

  int id_                = -1;  // index in the trace under way
  std::string_view name_ = {};
};

/// Arguments with which a layer's stage is made for one number of rows.
template <class D> struct Site {
  typename Kernels<D>::runtime& runtime;
  typename Kernels<D>::layout in;  // of x, as the layer before writes it
  int rows;
  int layer;                               // position in the network, 0-based
  bool wants_dx;                           // true if a layer before it is trained
  typename Kernels<D>::layout other = {};  // of the input that a sum adds to x
};

/// One layer of a Sequential: a type, a function from the shape of a row to the shape of a row.
///
///   L::name                          "dense"; variables are "dense/kernel", then "dense_1/kernel"
///   L::template check<In>()          a function whose static_asserts refuse a shape; not a part of apply, as clang
///                                    abandons a class with a failed static_assert, and reports further errors
///   L::template apply<In>::type      the shape that comes out
///   L::template apply<In>::variables std::array<VariableSpec, n>
///                                    a moving average has a momentum, and comes after the trained ones
///   L::template stage<D, In>         how it computes on a device: made from a Site<D>, then out(), workspace(),
///                                    bind(Ports), read_from(x), forward(Pass), backward(Pass);
///                                    `overwrites`: y may be x, and dx may be dy; `keeps_y`: backward reads y
///
/// Everything else is optional. OptionalMembersFit refuses a member of one of the first five names that is not static,
/// or no constant:
///
///   | member              | what it says                                                  | without it           |
///   | ------------------- | ------------------------------------------------------------- | -------------------- |
///   | L::text()           | the layer and its options in one word without spaces, which   | type_name<L>()       |
///   |                     | ranks compare when they connect                               |                      |
///   | L::joins            | adds up over all replicas in forward, and in backward if it   | computes alone       |
///   |                     | computes dx: Together                                         |                      |
///   | L::gives_probabilities | each row of y adds up to 1: losses on logits refuse it     | y are logits         |
///   | L::monotone         | an activation that never decreases: moved after a max pool    | stays where it is    |
///   | L::picks            | y are some of the numbers of x: a max pool                    | y are other numbers  |
///   | apply::products     | multiplications of one row in forward                         | none are counted     |
///   | stage::renames      | y is x and dx is dy, wherever it is not the first layer       | y has its own memory |
///   | reads_workspace()   | of a stage, false: backward reads nothing that forward left   | it has memory alone  |
///   | L::is_sized         | false for a size of zero: check_size() refuses it, and        | check() refuses it   |
///   |                     | nothing else is asked of the layer                            |                      |
///   | L::check_device<D>() | refuses a device that has no stage for it, with a sentence,    | a stage for each    |
///   |                     | and returns false then                                        |                      |
template <class L, class In>
concept SequentialLayer = requires {
  { L::name } -> std::convertible_to<std::string_view>;
  L::template check<In>();
  typename L::template apply<In>::type;
  { L::template apply<In>::variables.size() } -> std::convertible_to<std::size_t>;
};

/// Layers whose optional members can be read as the table at SequentialLayer says. Otherwise the library would take
/// them for absent, and nobody would see it.
template <class L>
concept OptionalMembersFit =
    (!requires { &L::text; } || requires { { L::text() } -> std::convertible_to<std::string>; }) &&
    (!requires { &L::joins; } || requires { typename std::bool_constant<L::joins>; }) &&
    (!requires { &L::gives_probabilities; } || requires { typename std::bool_constant<L::gives_probabilities>; }) &&
    (!requires { &L::monotone; } || requires { typename std::bool_constant<L::monotone>; }) &&
    (!requires { &L::picks; } || requires { typename std::bool_constant<L::picks>; });

/// The `apply` of a layer without variables whose output has the shape of its input.
template <class In> struct SameShape {
  using type = In;
  static constexpr std::array<VariableSpec, 0> variables{};
};

/// The first entry of a Sequential: the shape of one row of input.
template <int... D> struct Input {
  using shape = Shape<D...>;
};

// Options of layers are types, in any order: Conv2D<32, 3, Same, Stride<2>, HeNormal>.

namespace detail {

/// Padding around an image: `pixels` on each side or, if `same`, so that the output has ceil(in / stride) pixels.
struct Padding {
  bool same  = false;
  int pixels = 0;

  std::string text() const { return same ? "Same" : "Pad<" + std::to_string(pixels) + ">"; }
};

}  // namespace detail

/// No padding: out = floor((in - kernel) / stride) + 1. Keras: padding="valid".
struct Valid {
  static constexpr auto padding = detail::Padding{};
};  // no padding (Keras: "valid")
/// Padding so that out = ceil(in / stride). Keras: padding="same".
struct Same {
  static constexpr auto padding = detail::Padding{.same = true};
};  // out = ceil(in / stride): "same"

/// Padding of N pixels on each side: padding=N in PyTorch.
template <int N> struct Pad {
  static_assert(N >= 0, "chorale: Pad<N> needs at least 0");
  static constexpr auto padding = detail::Padding{.pixels = N};
};

/// A layer without a bias, such as one that batch normalization follows.
struct NoBias {
  static constexpr bool biased = false;
};  // where batch normalization follows

/// Option of layers over sequences: step t of y is computed from the steps of x up to t alone. Keras: padding="causal" of
/// Conv1D, use_causal_mask=True of MultiHeadAttention.
struct Causal {};

/// Distance between windows, in pixels, in both directions.
template <int S> struct Stride {
  static_assert(S > 0, "chorale: Stride<S> needs at least 1");
  static constexpr int stride = S;
};

/// First values of the kernel. Without it GlorotUniform, as in Keras.
template <Init I> struct Initializer {
  static constexpr Init init = I;
};
using GlorotUniform = Initializer<Init::glorot_uniform>;
using GlorotNormal  = Initializer<Init::glorot_normal>;
using HeUniform     = Initializer<Init::he_uniform>;
using HeNormal      = Initializer<Init::he_normal>;
using Orthogonal    = Initializer<Init::orthogonal>;

namespace detail {

template <class T> concept padding_option     = requires { T::padding; };
template <class T> concept bias_option        = requires { T::biased; };
template <class T> concept stride_option      = requires { T::stride; };
template <class T> concept initializer_option = requires { T::init; };

template <class... Options> constexpr Padding padding_of() {
  auto padding = Padding{};
  (
      [&] {
        if constexpr (padding_option<Options>) padding = Options::padding;
      }(),
      ...);
  return padding;
}

template <class... Options> constexpr int stride_or(int fallback) {
  int stride = fallback;
  (
      [&] {
        if constexpr (stride_option<Options>) stride = Options::stride;
      }(),
      ...);
  return stride;
}

template <class... Options> constexpr Init init_or(Init fallback) {
  Init init = fallback;
  (
      [&] {
        if constexpr (initializer_option<Options>) init = Options::init;
      }(),
      ...);
  return init;
}

template <class Option>
inline constexpr bool known_option = padding_option<Option> || stride_option<Option> || initializer_option<Option>;

/// A window with the pads of `padding`. With Same, an odd pixel is added below and right, as in Keras.
constexpr Window padded(Window w, Padding padding) {
  w.pad_before = w.pad_after = w.pad_left = w.pad_right = padding.pixels;
  if (padding.same) {
    auto const total = [&](int size, int kernel) {
      auto const reach  = (kernel - 1) * w.dilation + 1;
      auto const needed = ((size + w.stride - 1) / w.stride - 1) * w.stride + reach - size;
      return needed > 0 ? needed : 0;
    };
    w.pad_before = total(w.height, w.kernel) / 2;
    w.pad_after  = total(w.height, w.kernel) - w.pad_before;
    w.pad_left   = total(w.width, w.kernel_width()) / 2;
    w.pad_right  = total(w.width, w.kernel_width()) - w.pad_left;
  }
  return w;
}
/// The window of a square kernel over images of shape In.
template <class In> constexpr Window window(int kernel, int stride, Padding padding) {
  return padded(
      {.height = In::dims[0], .width = In::dims[1], .channels = In::dims[2], .kernel = kernel, .stride = stride},
      padding);
}

/// Shape of the output of a window. If the window does not fit, some valid shape, so that the error of check() is the
/// only one.
template <class In, int Channels, int Kernel, int StrideOf, Padding Around> constexpr auto windowed() {
  if constexpr (In::rank != 3) return Shape<1, 1, Channels>{};
  else {
    constexpr auto w = window<In>(Kernel, StrideOf, Around);
    if constexpr (w.out_height() < 1 || w.out_width() < 1) return Shape<1, 1, Channels>{};
    else return Shape<w.out_height(), w.out_width(), Channels>{};
  }
}

/// True if every window is within the padded image, and none is in the padding alone.
template <class In, int Kernel, Padding Around>
inline constexpr bool window_fits =
    In::rank != 3 || Around.same ||
    (Around.pixels < Kernel && In::dims[0] + 2 * Around.pixels >= Kernel && In::dims[1] + 2 * Around.pixels >= Kernel);

}  // namespace detail
}  // namespace chorale::nn
