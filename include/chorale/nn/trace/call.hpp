// SPDX-License-Identifier: Apache-2.0
//
// What a layer says of itself for given inputs, and how its call is recorded.
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn::graph {

using detail::List;

/// A layer of kernels, as Sequential takes it: a function from the shape of a row to the shape of a row.
template <class L> concept KernelLayer = requires { typename L::template apply<Shape<1>>; };

/// A layer of kernels that works on the last dimension of its input, for each vector of that dimension.
template <class L> concept OverLastDimension = KernelLayer<L> && requires { requires L::over_last_dimension; };

/// The Shape that a layer of kernels is applied to.
template <class L, class O> struct ShapeIn {
  using type = typename O::shape;
};
// One vector of the last dimension.
template <OverLastDimension L, class O> struct ShapeIn<L, O> {
  using type = Shape<O::back>;
};

/// The Of of float with a Shape.
template <class S> struct OfShape;
// Its one specialisation.
template <int... D> struct OfShape<Shape<D...>> {
  using type = Of<float, D...>;
};

/// A layer of size zero, such as a Dense of no units: its check_size() refuses it, and nothing else is asked of it.
template <class L> concept Sizeless = requires { requires !L::is_sized; };

/// How a layer describes its output: a custom layer by `output`, a layer of kernels by `apply`.
template <class L, class... O> struct Described {
  static constexpr bool takes = [] {
    if constexpr (Sizeless<L>) return false;
    else return requires { L::output(O{}...); };
  }();

  static constexpr auto output() { return L::output(O{}...); }
  static constexpr auto variables() {
    if constexpr (requires { L::variables(O{}...); }) return L::variables(O{}...);
    else return std::array<VariableSpec, 0>{};
  }
  static constexpr std::size_t products() {
    if constexpr (requires { L::products(O{}...); }) return L::products(O{}...);
    else return 0;
  }
  static constexpr std::size_t inner() {
    if constexpr (requires { L::inner_products(O{}...); }) return L::inner_products(O{}...);
    else return 0;
  }
  static constexpr bool check() {
    if constexpr (Sizeless<L>) L::check_size();
    else if constexpr (requires { L::template check<O...>(); }) L::template check<O...>();
    else
      static_assert(takes,
                    "chorale: this layer does not take these inputs. Its function output(...) says which it "
                    "takes");
    return true;
  }
};
// A layer of kernels has one input: more are refused.
template <KernelLayer L, class... O> struct Described<L, O...> {
  static constexpr bool takes = false;
  static constexpr bool check() {
    static_assert(sizeof...(O) == 1,
                  "chorale: this layer takes one input. Call it once for each, or put "
                  "nn::concatenate(...) before it");
    return true;
  }
};
// A layer of kernels, described by `apply`.
template <KernelLayer L, class T, int... D> struct Described<L, Of<T, D...>> {
  using In                    = Of<T, D...>;
  static constexpr bool joins = requires { requires L::joins; };
  static constexpr bool fits  = std::is_same_v<T, float> && (!OverLastDimension<L> || sizeof...(D) > 0);
  static constexpr bool takes = fits && !Sizeless<L>;

  using shape                          = typename ShapeIn<L, In>::type;
  static constexpr std::size_t repeats = OverLastDimension<L> ? In::vectors : 1;

  static constexpr auto output() {
    using Made = typename OfShape<typename L::template apply<shape>::type>::type;
    if constexpr (OverLastDimension<L>) return WithBack<In, Made::back>{};
    else return Made{};
  }
  static constexpr auto variables() { return L::template apply<shape>::variables; }
  static constexpr std::size_t products() {
    if constexpr (requires { L::template apply<shape>::products; }) return L::template apply<shape>::products * repeats;
    else return 0;
  }
  static constexpr std::size_t inner() { return 0; }
  static constexpr bool check() {
    static_assert(std::is_same_v<T, float>,
                  "chorale: this layer takes numbers, but what comes in are ids; put "
                  "nn::Embedding<rows, width> before it");
    static_assert(
        !OverLastDimension<L> || sizeof...(D) > 0,
        "chorale: this layer works on the last dimension of a row, but a row that comes in is one number; put "
        "nn::reshape<1>(...) before it");
    if constexpr (takes) L::template check<shape>();
    else if constexpr (fits) L::check_size();
    return true;
  }
};

/// True if a layer computes each position of a sequence by itself: ragged values are rows of single positions to it.
template <class L>
inline constexpr bool each_position =
    requires { requires L::each_position; } || requires { requires L::over_last_dimension; };

/// True if a layer takes ragged values as they are, and reads at.lengths().
template <class L> inline constexpr bool reads_lengths = requires { requires L::reads_lengths; };

/// How a layer describes its output for ragged inputs that it takes position by position.
template <class L, class... O> struct EachPosition {
  using One = Described<L, PositionOf<O>...>;

  static constexpr int field  = std::max({O::ragged_field...});
  static constexpr bool alike = ((O::ragged_field == field) && ...);
  static constexpr bool takes = [] {
    if constexpr (each_position<L> && alike) return One::takes;
    else return false;
  }();

  static constexpr auto output() { return typename detail::AtEachPosition<field, decltype(One::output())>::type{}; }
  static constexpr auto variables() { return One::variables(); }
  static constexpr std::size_t products() { return One::products(); }
  static constexpr std::size_t inner() { return One::inner(); }
  static constexpr bool check() {
    static_assert(each_position<L>,
                  "chorale: this layer does not take a ragged dimension, as rows of different lengths would be of "
                  "different shapes to it. Put nn::LSTM, nn::GlobalAveragePool1D or another layer that gives one "
                  "vector for each row before it; a layer of one's own sets each_position or reads_lengths");
    static_assert(!each_position<L> || alike,
                  "chorale: this layer combines values whose rows have the lengths of different fields, or of none. "
                  "It takes values that are ragged in one field");
    if constexpr (each_position<L> && alike) One::check();
    return true;
  }
};

/// How a layer describes itself for inputs of any kind.
template <class L, class... O>
using DescribedCall =
    std::conditional_t<(O::is_ragged || ...) && !reads_lengths<L>, EachPosition<L, O...>, Described<L, O...>>;

/// The outputs of a layer as a List of Of.
template <class T> struct OutputsOf {
  using type = List<T>;
};
// Several of them.
template <class... O> struct OutputsOf<Several<O...>> {
  using type = List<O...>;
};

/// How a layer computes on a device; the specialisations make its Ops.
template <class D, class L, class In, class Out> struct Stage;

/// The constant functions of layer L on device D, for inputs and outputs of these types.
template <class D, class L, class In, class Out> inline constexpr Ops ops_of = Stage<D, L, In, Out>::ops();

/// True if layer L gives the gradients of its variables as rows, where all layers that share them do.
template <class L> inline constexpr bool gives_rows = requires { requires L::gives_rows; };

/// True if a layer computes each number by itself, so that it takes parts of vectors.
template <class L> inline constexpr bool each_element = requires { requires L::each_element; };

/// True if outputs have the positions of the first input.
template <class In, class... Out> constexpr bool keeps_positions() {
  if constexpr (In::rank == 0) return false;
  else
    return ([] {
      if constexpr (Out::rank == 0) return false;
      else return Out::dims[0] == In::dims[0];
    }() && ...);
}

/// What a rank has of the outputs of layer L, by what it has of its inputs. Notes in the trace what L does not take. A
/// layer that exchanges values with other ranks says both: refuses(held) and gives(held).
template <class L, class First, class... O, class... Out>
constexpr Held held_by(Trace& trace, List<First, O...>, List<Out...>, Span<int const> in) {
  auto const held = trace.values[at(in[0])].held;
  auto mistake    = Mistake::none;
  auto made       = held;
  for (auto const value : in)
    if (trace.values[at(value)].held != held) mistake = Mistake::other_parts;
  if constexpr (requires { L::refuses(held); }) {
    if (mistake == Mistake::none) mistake = L::refuses(held);
    made = L::gives(held);
  } else if (!held.whole() && mistake == Mistake::none) {
    if (!held.columns.empty() && !each_element<L>) mistake = Mistake::part_of_vectors;
    else if (!held.positions.empty() && !(each_position<L> && keeps_positions<First, Out...>()))
      mistake = Mistake::part_of_positions;
  }
  if (trace.mistake == Mistake::none) trace.mistake = mistake;
  return made;
}

/// Notes over which axis the gradients of a layer's variables are added up: the axis of the positions that it reads,
/// unless the layer does so itself.
template <class L> constexpr void note_sums(Trace& trace, int id, Held const& read, Held const& made) {
  constexpr bool own = requires { requires L::sums_gradients; };
  auto const axis    = own || made.positions.empty() ? std::string_view{} : read.positions;
  auto const& layer  = trace.layers[at(id)];
  for (auto v = at(layer.first); v < at(layer.first + layer.variables); ++v) {
    auto& variable = trace.variables[v];
    if (variable.users > 0 && variable.summed != axis && trace.mistake == Mistake::none)
      trace.mistake = Mistake::variables_of_other_parts;
    variable.summed = axis;
  }
}

/// Records one call of layer L. `id` is the layer's index in the trace, or negative at its first call.
template <class D, class L, class... O, class... Out>
constexpr auto record(List<Out...>, Trace& trace, int& id, std::string_view name,
                      std::array<int, sizeof...(O)> const& in) {
  constexpr auto specs = DescribedCall<L, O...>::variables();
  auto const variables = Span<VariableSpec const>{specs.data(), specs.size()};
  if (id < 0) id = trace.add_layer(L::name, name, variables);
  else if (trace.mistake == Mistake::none && !trace.has_variables(id, variables))
    trace.mistake = Mistake::two_shapes_of_one_layer;
  else if (trace.mistake == Mistake::none && trace.is_moving(id)) trace.mistake = Mistake::two_calls_of_moving_layer;
  if (trace.mistake == Mistake::none && trace.recompute >= 0 && trace.is_moving(id))
    trace.mistake = Mistake::moving_layer_in_recompute;
  auto const held = held_by<L>(trace, List<O...>{}, List<Out...>{}, in);
  note_sums<L>(trace, id, trace.values[at(in[0])].held, held);
  auto const out = std::array{ValueRecord{.size   = Out::size,
                                          .bytes  = Out::size * sizeof(typename Out::type),
                                          .ragged = Out::ragged_field,
                                          .number = std::is_same_v<typename Out::type, float>,
                                          .shape  = &text_of_dimensions<Out>,
                                          .held   = held}...};
  auto const first =
      trace.add_call(&ops_of<D, L, List<O...>, List<Out...>>, id, in, out, DescribedCall<L, O...>::products(),
                     DescribedCall<L, O...>::inner(), &chorale::text_of<L>, gives_rows<L>);
  if constexpr (sizeof...(Out) == 1) return Tensor<D, Out...>{&trace, first};
  else
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple{Tensor<D, Out>{&trace, first + static_cast<int>(I)}...};
    }(std::index_sequence_for<Out...>{});
}

/// A call of layer L with values that have derivatives; defined in derivatives.hpp.
template <class D, class L, class... O> struct CallWithDerivatives;

template <class O> inline constexpr bool has_derivatives = requires { typename O::parts; };

/// A call of layer L with values that ranks along an axis have parts of, or of a layer that is split; defined in
/// nn/parallel/distribution/call.hpp.
template <class D, class L, class... O> struct CallWithSpread;

template <class O> inline constexpr bool has_spread = requires { typename O::spread; };

/// True if layer L is split over an axis, and says what ranks have of its inputs and of its output.
template <class L>
inline constexpr bool states_spread = requires {
  typename L::axis;
  &L::spread;
};

/// Checks one call of layer L, and records it. A call with a wrong input gives a Refused value.
template <class D, class L, class... O> constexpr auto call(int& id, std::string_view name, Tensor<D, O>... x) {
  auto& trace = *std::get<0>(std::tuple{x.trace...});
  if constexpr ((std::is_same_v<O, Refused> || ...)) {
    return Tensor<D, Refused>{&trace, 0};
  } else if constexpr ((has_derivatives<O> || ...)) {
    return CallWithDerivatives<D, L, O...>::run(id, name, x...);
  } else if constexpr ((has_spread<O> || ...) || states_spread<L>) {
    return CallWithSpread<D, L, O...>::run(id, name, x...);
  } else {
    DescribedCall<L, O...>::check();
    if constexpr (DescribedCall<L, O...>::takes) {
      using Out = decltype(DescribedCall<L, O...>::output());
      return record<D, L, O...>(typename OutputsOf<Out>::type{}, trace, id, name, std::array{x.value...});
    } else {
      trace.mistake = Mistake::refused;
      return Tensor<D, Refused>{&trace, 0};
    }
  }
}

}  // namespace chorale::nn::graph
