// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// Several layers, written as one.
template <class... Layers>
struct Block;

/// The layers N times, one after the other; each time with their own variables.
template <int N, class... Layers>
struct Repeat {
  static_assert(N >= 0, "chorale: Repeat<N, ...> needs at least 0");
};

/// The layers whose output Residual adds in place of x.
template <class... Layers>
struct Shortcut;

/// y = layers(x) + x
///
///   nn::Residual<nn::Conv2D<64, 3, nn::Same>, nn::ReLU, nn::Conv2D<64, 3, nn::Same>>
///   nn::Residual<nn::Conv2D<128, 3, nn::Same, nn::Stride<2>>, nn::Shortcut<nn::Conv2D<128, 1, nn::Stride<2>>>>
///
/// x, y      of one shape; with a Shortcut, which is the last argument, y = layers(x) + shortcut(x)
/// source    He et al., CVPR 2016
template <class... Layers>
struct Residual;

namespace detail {

/// How a residual block is flattened into a list of layers: `fork` marks the block's input, `turn` starts the shortcut
/// branch again from that input, and `sum` adds the two branches (or the input itself if there is no shortcut).
enum class Branch { none, fork, turn, sum };

template <class L>
constexpr Branch branch_of() {
  if constexpr (requires { L::branch; }) return L::branch;
  else return Branch::none;
}

/// The layers whose outputs are the x of each layer, and what a sum adds to x: indices of layers.
template <std::size_t N>
struct Wires {
  static constexpr std::size_t batch = ~std::size_t{0};                    // no layer: the user's batch
  std::array<std::size_t, N> x{}, other{};
};

template <std::size_t N>
constexpr Wires<N> wires_of(std::array<Branch, N> const& branches) {
  auto wires  = Wires<N>{};
  auto open   = std::array<std::size_t, N + 1>{};                          // what a sum will add, of nested branches
  auto forks  = std::array<std::size_t, N + 1>{};
  auto depth  = std::size_t{0};
  for (std::size_t i = 0; i < N; ++i) {
    wires.x[i] = wires.other[i] = i == 0 ? Wires<N>::batch : i - 1;
    if (branches[i] == Branch::fork) open[depth] = forks[depth] = i, ++depth;
    if (branches[i] == Branch::turn) wires.x[i] = forks[depth - 1], open[depth - 1] = i - 1;
    if (branches[i] == Branch::sum) wires.other[i] = open[--depth];
  }
  return wires;
}

/// For each layer, true if the output of any layer with variables reaches it.
template <std::size_t N>
constexpr std::array<bool, N> trains_before(Wires<N> const& wires, std::array<std::size_t, N> const& variables) {
  auto trains = std::array<bool, N>{};
  for (std::size_t i = 1; i < N; ++i)
    for (auto const from : {wires.x[i], wires.other[i]}) trains[i] = trains[i] || trains[from] || variables[from] > 0;
  return trains;
}

/// Largest depth of residuals within residuals.
template <std::size_t N>
constexpr std::size_t depth_of(std::array<Branch, N> const& branches) {
  std::size_t open = 0, most = 0;
  for (auto const branch : branches) {
    if (branch == Branch::fork) most = std::max(most, ++open);
    if (branch == Branch::sum) --open;
  }
  return most;
}

/// y = x, which two branches read. Backward adds the gradients of both.
struct Fork {
  static constexpr std::string_view name = "fork";
  static constexpr auto branch           = Branch::fork;

  template <class In>
  static constexpr void check() {}
  template <class In>
  using apply = SameShape<In>;

  template <class D, class In>
  class stage {
   public:
    static constexpr bool overwrites = true, keeps_y = true;               // the sum reads y, or a second branch does

    explicit stage(Site<D> const& site) : in_{site.in} {}

    auto        out() const { return in_; }
    std::size_t workspace() const { return 0; }
    void bind(Ports const& p) { at_ = p; }
    void read_from(float const* x) { at_.x = const_cast<float*>(x); }      // only read
    void forward(Pass const&) const {
      if (at_.y != at_.x) Kernels<D>::copy(in_, at_.x, at_.y);
    }
    void backward(Pass const&) const {
      if (at_.dx != nullptr) Kernels<D>::add(in_, at_.d_other, at_.dx);
    }

   private:
    typename Kernels<D>::layout in_;
    Ports at_;
  };
};

/// Start of the second branch: y is the output of the fork, of shape At.
template <class At>
struct Turn {
  static constexpr std::string_view name = "turn";
  static constexpr auto branch           = Branch::turn;

  template <class In>
  static constexpr void check() {}
  template <class In>
  using apply = SameShape<At>;

  template <class D, class In>
  struct stage {
    static constexpr bool overwrites = true, keeps_y = true;
    explicit stage(Site<D> const& site) : in{site.in} {}
    typename Kernels<D>::layout in;

    auto        out() const { return in; }
    std::size_t workspace() const { return 0; }
    void bind(Ports const&) {}                                             // x is y, and dx is dy
    void read_from(float const*) {}
    void forward(Pass const&) const {}
    void backward(Pass const&) const {}
  };
};

/// y = x + other, where `other` is the output of the other branch, of shape Other.
template <class Other>
struct Sum {
  static constexpr std::string_view name = "sum";
  static constexpr auto branch           = Branch::sum;

  template <class In>
  static constexpr void check() {
    static_assert(std::is_same_v<In, Other>,
                  "chorale: the branches of a Residual give different shapes; give it an nn::Shortcut<...> that ends "
                  "in the shape of its layers, say nn::Shortcut<nn::Conv2D<filters, 1, nn::Stride<2>>>");
  }
  template <class In>
  using apply = SameShape<In>;

  template <class D, class In>
  struct stage : Kernels<D>::Sum {
    static constexpr bool overwrites = true, keeps_y = false;
    explicit stage(Site<D> const& site) : Kernels<D>::Sum{site.runtime, site.in, site.other} {}
  };
};

}  // namespace detail
}  // namespace chorale::nn
