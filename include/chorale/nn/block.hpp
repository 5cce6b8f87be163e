// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layer.hpp>
#include <chorale/nn/layer_list.hpp>
#include <chorale/nn/merge.hpp>
#include <chorale/nn/residual.hpp>

#include <cstddef>
#include <tuple>

namespace chorale::nn {

namespace detail {

/// Layers that are called one after another.
template <class Layers>
class CalledInTurn;
template <class... L>
class CalledInTurn<List<L...>> {
 public:
  constexpr auto operator()(auto x) const { return call<0>(x); }

 private:
  template <std::size_t I>
  constexpr auto call(auto x) const {
    if constexpr (I == sizeof...(L)) return x;
    else return call<I + 1>(std::get<I>(layers_)(x));
  }

  std::tuple<L...> layers_;
};

}  // namespace detail

/// Several layers, written as one: in the list of a Sequential, or as a member of a Graph, which calls them in turn.
///
///   nn::Block<nn::Dense<512>, nn::ReLU, nn::Dense<64>> bottom;           // y = bottom(x)
template <class... Layers>
struct Block : detail::CalledInTurn<typename detail::Flat<detail::List<>, Layers...>::type> {};

// Declared in residual.hpp, where its docstring is.
template <class... Layers>
struct Residual {
  constexpr auto operator()(auto x) const {
    if constexpr (branches::shortcut::size > 0) return main(x) + shortcut(x);
    else return main(x) + x;
  }

 private:
  using branches = detail::Branches<detail::List<>, Layers...>;

  detail::CalledInTurn<typename detail::FlatList<typename branches::main>::type> main;
  detail::CalledInTurn<typename detail::FlatList<typename branches::shortcut>::type> shortcut;
};

}  // namespace chorale::nn
