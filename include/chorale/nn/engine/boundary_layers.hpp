// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/flatten.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/sequential.hpp>

#include <string_view>
#include <type_traits>

namespace chorale::nn::detail {

/// Last layer: converts the outputs to the form that users read, which is float, channels last.
struct ToFloat {
  static constexpr std::string_view name = "plain";

  template <class In>
  static constexpr void check() {}
  template <class In>
  using apply = Flatten::apply<In>;
  template <class D, class In>
  using stage = Flatten::stage_of<typename Kernels<D>::ToPlain, D, In>;
};

/// First layer: converts the inputs to the type in which the network stores activations.
struct ToActivations {
  static constexpr std::string_view name = "rounded";

  template <class In>
  static constexpr void check() {}
  template <class In>
  using apply = SameShape<In>;
  template <class D, class In>
  struct stage : Kernels<D>::ToActivations {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site) : Kernels<D>::ToActivations{site.runtime, site.in} {}
  };
};

/// True if device D stores the activations of Net in 16 bits.
template <class D, class Net>
inline constexpr bool keeps_halves = requires {
  requires Kernels<D>::keeps_halves;
  requires Net::activations != Elements::f32;
};

/// The layers of a network as a device computes them, with first and last layers that convert.
template <bool Halves, class Net, class Nodes = typename Net::nodes>
struct WithBoundaryLayers;
template <class Net, class... N>
struct WithBoundaryLayers<false, Net, List<N...>> {
  using type = List<N...>;
};
template <class Net, class... N>
  requires(Net::output::rank == 3)
struct WithBoundaryLayers<false, Net, List<N...>> {
  using type = List<N..., Node<ToFloat, typename Net::output>>;
};
template <class Net, class... N>
struct WithBoundaryLayers<true, Net, List<N...>> {
  using type = List<Node<ToActivations, typename Net::input>, N..., Node<ToFloat, typename Net::output>>;
};

}  // namespace chorale::nn::detail
