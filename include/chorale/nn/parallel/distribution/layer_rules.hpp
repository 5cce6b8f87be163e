// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/fraction.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/parallel/distribution/rules.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/host_layer.hpp>

#include <concepts>
#include <limits>

namespace chorale::nn {

template <Fraction Rate> struct Dropout;
struct Flatten;
struct UnitNorm;

/// How a layer computes on its inputs, along each axis over which it is not split: which rule holds for it.
///
///   static constexpr auto spreads_as = nn::SpreadsAs{nn::distribution::Operation::linear, 1};   in a layer
///
/// over    the last dimensions over which it works: a value may be sharded along the others. Without a number: all
/// keeps   a layer that says nothing is taken for any function of all its inputs; one with variables takes I alone
struct SpreadsAs {
  distribution::Operation operation = distribution::Operation::nonlinear;
  int over                          = std::numeric_limits<int>::max() / 2;
};

namespace detail {

template <Activation F> constexpr bool is_activation(Elementwise<F> const*) { return true; }
constexpr bool is_activation(void const*) { return false; }

/// The rule of layer L without variables.
template <class L>
inline constexpr SpreadsAs spreads_as = [] {
  using enum distribution::Operation;
  if constexpr (requires { L::spreads_as; }) return L::spreads_as;
  else if constexpr (graph::each_element<L> || is_activation(static_cast<L const*>(nullptr)) ||
                     std::derived_from<L, nn::Elementwise<L>>)
    return SpreadsAs{nonlinear, 0};
  else return SpreadsAs{};
}();
template <> inline constexpr SpreadsAs spreads_as<Add>{distribution::Operation::add, 0};
template <> inline constexpr SpreadsAs spreads_as<Subtract>{distribution::Operation::add, 0};
template <> inline constexpr SpreadsAs spreads_as<Average>{distribution::Operation::add, 0};
template <> inline constexpr SpreadsAs spreads_as<Concatenate>{distribution::Operation::add, 1};
template <> inline constexpr SpreadsAs spreads_as<Multiply>{distribution::Operation::multiply, 0};
template <> inline constexpr SpreadsAs spreads_as<Maximum>{distribution::Operation::combine, 0};
template <> inline constexpr SpreadsAs spreads_as<Minimum>{distribution::Operation::combine, 0};
template <> inline constexpr SpreadsAs spreads_as<Dot>{distribution::Operation::contract, 1};
template <> inline constexpr SpreadsAs spreads_as<Softmax>{distribution::Operation::nonlinear, 1};
template <> inline constexpr SpreadsAs spreads_as<UnitNorm>{distribution::Operation::nonlinear, 1};
template <> inline constexpr SpreadsAs spreads_as<Flatten>{distribution::Operation::linear};
template <int... To> inline constexpr SpreadsAs spreads_as<Reshape<To...>>{distribution::Operation::linear};
template <int... Axes> inline constexpr SpreadsAs spreads_as<Permute<Axes...>>{distribution::Operation::linear};
template <int Begin, int End, int Axis> requires(Axis < 0)
inline constexpr SpreadsAs spreads_as<Slice<Begin, End, Axis>>{distribution::Operation::linear, -Axis};
template <int Begin, int End, int Axis> requires(Axis >= 0)
inline constexpr SpreadsAs spreads_as<Slice<Begin, End, Axis>>{distribution::Operation::linear};
template <Fraction Rate> inline constexpr SpreadsAs spreads_as<Dropout<Rate>>{distribution::Operation::linear};

}  // namespace detail
}  // namespace chorale::nn
