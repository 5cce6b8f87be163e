// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <utility>

namespace chorale::nn {

namespace detail {

template <class... T>
struct List {
  static constexpr std::size_t size = sizeof...(T);
};

}  // namespace detail

namespace graph {

struct Trace;

}  // namespace graph

/// The element type and the shape of one row of a value in a network. An empty class: layers take it as an argument,
/// and return it.
///
///   Of<float, 40, 64>     (B, 40, 64) numbers
///   Of<int, 40>           (B, 40) ids
template <class T, int... D>
struct Of {
  using type  = T;
  using shape = Shape<D...>;

  static constexpr int rank                  = sizeof...(D);
  static constexpr std::array<int, rank> dims{D...};
  static constexpr std::size_t size          = shape::size;
  static constexpr int back                  = [] {                       // the last dimension; 1 if there is none
    if constexpr (rank == 0) return 1;
    else return dims[rank - 1];
  }();
  static constexpr std::size_t vectors       = size / static_cast<std::size_t>(back);     // of the last dimension
};

/// What a layer with several outputs returns from `output`: an Of for each of them.
template <class... O>
struct Several {};

/// The type of a value after a mistake was reported. Every layer takes it and reports nothing, so that there is one
/// error.
struct Refused {};

/// A value in a network whose call operator is being traced: what layers take and return.
///
/// D       the device for which the network is traced
/// O       Of<T, dims...>, or Refused
template <class D, class O>
struct Tensor {
  using of = O;

  graph::Trace* trace = nullptr;
  int value           = -1;                                                // index in the trace
};

namespace detail {

template <class O, int Back>
struct ReplaceBack;
template <class T, int... D, int Back>
struct ReplaceBack<Of<T, D...>, Back> {
  template <std::size_t... I>
  static auto make(std::index_sequence<I...>) {
    constexpr auto d = std::array<int, sizeof...(D)>{D...};
    return Of<T, (I + 1 == sizeof...(D) ? Back : d[I])...>{};
  }
  using type = decltype(make(std::make_index_sequence<sizeof...(D)>{}));
};

}  // namespace detail

/// O with another last dimension.
template <class O, int Back>
using WithBack = typename detail::ReplaceBack<O, Back>::type;

}  // namespace chorale::nn
