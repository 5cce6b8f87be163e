// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/layer.hpp>

#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// Several layers, written as one.
template <class... Layers> struct Block;

/// The layers N times, one after the other; each time with their own variables.
template <int N, class... Layers> struct Repeat {
  static_assert(N >= 0, "chorale: Repeat<N, ...> needs at least 0");
};

/// The layers whose output Residual adds in place of x.
template <class... Layers> struct Shortcut;

/// y = layers(x) + x
///
///   nn::Residual<nn::Conv2D<64, 3, nn::Same>, nn::ReLU, nn::Conv2D<64, 3, nn::Same>>
///   nn::Residual<nn::Conv2D<128, 3, nn::Same, nn::Stride<2>>, nn::Shortcut<nn::Conv2D<128, 1, nn::Stride<2>>>>
///
/// x, y      of one shape; with a Shortcut, which is the last argument, y = layers(x) + shortcut(x)
/// source    He et al., CVPR 2016
template <class... Layers> struct Residual;

namespace detail {

/// How a residual block is flattened into a list of layers: `fork` marks the block's input, `turn` starts the shortcut
/// branch again from that input, and `sum` adds the two branches (or, without a shortcut, the input itself).
enum class Branch { none, fork, turn, sum };

template <class L> constexpr Branch branch_of() {
  if constexpr (requires { L::branch; }) return L::branch;
  else return Branch::none;
}

/// y = x, which two branches read. Not computed: a place in the list, as are Turn and Sum.
struct Fork {
  static constexpr std::string_view name = "fork";
  static constexpr auto branch           = Branch::fork;

  template <class In> static constexpr void check() {}
  template <class In> using apply = SameShape<In>;
};

/// Start of the second branch: y is the output of the fork, of shape At.
template <class At> struct Turn {
  static constexpr std::string_view name = "turn";
  static constexpr auto branch           = Branch::turn;

  template <class In> static constexpr void check() {}
  template <class In> using apply = SameShape<At>;
};

/// y = x + other, where `other` is the output of the other branch, of shape Other.
template <class Other> struct Sum {
  static constexpr std::string_view name = "sum";
  static constexpr auto branch           = Branch::sum;

  template <class In> static constexpr void check() {
    static_assert(std::is_same_v<In, Other>,
                  "chorale: the branches of a Residual give different shapes; give it an nn::Shortcut<...> that ends "
                  "in the shape of its layers, say nn::Shortcut<nn::Conv2D<filters, 1, nn::Stride<2>>>");
  }
  template <class In> using apply = SameShape<In>;
};

}  // namespace detail
}  // namespace chorale::nn
