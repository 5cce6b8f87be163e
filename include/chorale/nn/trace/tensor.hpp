// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace chorale::nn {

namespace detail {

template <class... T> struct List {
  static constexpr std::size_t size = sizeof...(T);
};

}  // namespace detail

namespace graph {

struct Trace;

}  // namespace graph

namespace detail {

/// The dimensions of a row without a ragged one, which is the first.
template <int... D> struct FixedShape {
  using type = Shape<D...>;
};
// With a ragged one.
template <int First, int... D> requires(First < 0) struct FixedShape<First, D...> {
  using type = Shape<D...>;
};

}  // namespace detail

/// The element type and the shape of one row of a value in a network. An empty class: layers take it as an argument,
/// and return it.
///
///   Of<float, 40, 64>     (B, 40, 64) numbers
///   Of<int, 40>           (B, 40) ids
///   Of<float, -1, 64>     each row has its own number of positions, as in input 0 of the network; -2: input 1
///
/// shape, size, vectors    of a row; of one position of a row, if the first dimension is ragged
template <class T, int... D> struct Of {
  using type  = T;
  using shape = typename detail::FixedShape<D...>::type;

  static constexpr int rank = sizeof...(D);
  static constexpr std::array<int, rank> dims{D...};
  static constexpr int ragged_field = [] {  // input that has its lengths; -1: none
    if constexpr (rank == 0) return -1;
    else return dims[0] < 0 ? -1 - dims[0] : -1;
  }();
  static constexpr bool is_ragged   = ragged_field >= 0;
  static constexpr std::size_t size = shape::size;
  static constexpr int back         = [] {  // the last dimension; 1 if there is none
    if constexpr (shape::rank == 0) return 1;
    else return dims[rank - 1];
  }();
  static constexpr std::size_t vectors = size / static_cast<std::size_t>(back);  // of the last dimension
};

/// The dimensions of a value of type Of<T, D...> for people, where B are the rows and T positions: "(B, 26, 26, 32)".
template <class O> std::string text_of_dimensions() {
  auto text = std::string{"(B"};
  for (auto const d : O::dims) text += d < 0 ? ", T" : ", " + std::to_string(d);
  return text + ")";
}

/// What a layer with several outputs returns from `output`: an Of for each of them.
template <class... O> struct Several {};

/// The type of a value after a mistake was reported. Every layer takes it and reports nothing, so that there is one
/// error.
struct Refused {
  static constexpr bool is_ragged = false;
};

/// The type of a value that is carried with derivatives by an input: see nn::derivatives.
///
/// O         Of<float, N>
/// S         its parts: the value, and each derivative
template <class O, class S> struct WithParts;
// Its one specialisation.
template <int N, class S> struct WithParts<Of<float, N>, S> {
  using parts                     = S;
  using packed                    = Of<float, static_cast<int>(S::size), N>;  // as it lies in memory
  static constexpr bool is_ragged = false;
};

/// A value in a network whose call operator is being traced: what layers take and return.
///
/// D       the device for which the network is traced
/// O       Of<T, dims...>, or Refused
template <class D, class O> struct Tensor {
  using of = O;

  graph::Trace* trace = nullptr;
  int value           = -1;  // index in the trace
};

namespace detail {

template <class O, int Back> struct ReplaceBack;
template <class T, int... D, int Back> struct ReplaceBack<Of<T, D...>, Back> {
  template <std::size_t... I> static auto make(std::index_sequence<I...>) {
    constexpr auto d = std::array<int, sizeof...(D)>{D...};
    return Of<T, (I + 1 == sizeof...(D) ? Back : d[I])...>{};
  }
  using type = decltype(make(std::make_index_sequence<sizeof...(D)>{}));
};

}  // namespace detail

namespace detail {

template <class O> struct PositionIn {
  using type = O;
};
template <class T, int First, int... D> requires(First < 0) struct PositionIn<Of<T, First, D...>> {
  using type = Of<T, D...>;
};

/// The outputs of a layer for one position, with the ragged dimension before them.
template <int Field, class O> struct AtEachPosition;
template <int Field, class T, int... D> struct AtEachPosition<Field, Of<T, D...>> {
  using type = Of<T, -1 - Field, D...>;
};
template <int Field, class... O> struct AtEachPosition<Field, Several<O...>> {
  using type = Several<typename AtEachPosition<Field, O>::type...>;
};

}  // namespace detail

/// The Of of one position of a ragged value; O itself if it is not ragged.
template <class O> using PositionOf = typename detail::PositionIn<O>::type;

/// O with another last dimension.
template <class O, int Back> using WithBack = typename detail::ReplaceBack<O, Back>::type;

}  // namespace chorale::nn
