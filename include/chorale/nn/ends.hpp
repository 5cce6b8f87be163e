// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/flatten.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/sequential.hpp>

#include <string_view>
#include <type_traits>

namespace chorale::nn::detail {

/// What comes out, as users read it: float, channels last.
struct Plain : Flatten {
  static constexpr std::string_view name = "plain";
};

/// The layers of a network as a device computes them.
template <class Nodes, class Output>
struct Ended;
template <class... N, class Output>
struct Ended<List<N...>, Output> {
  using type = List<N...>;
};
template <class... N, class Output>
  requires(Output::rank == 3)
struct Ended<List<N...>, Output> {
  using type = List<N..., Node<Plain, Output>>;
};

}  // namespace chorale::nn::detail
