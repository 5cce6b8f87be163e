// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/networks/layer_list.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <cstddef>
#include <tuple>

namespace chorale::nn {

namespace detail {

/// An object with which a layer of a list is called.
template <class L> struct Called {
  using type = L;
};
// A layer of kernels need not be derived from Layer.
template <graph::KernelLayer L> struct Called<L> {
  using type = Layer<L>;
};

/// Layers that are called one after another.
template <class Layers> class CalledInTurn;
template <class... L> class CalledInTurn<List<L...>> {
 public:
  constexpr auto operator()(auto x) const { return call<0>(x); }

 private:
  template <std::size_t I> constexpr auto call(auto x) const {
    if constexpr (I == sizeof...(L)) return x;
    else return call<I + 1>(std::get<I>(layers_)(x));
  }

  std::tuple<typename Called<L>::type...> layers_;
};

}  // namespace detail

/// Several layers, written as one: in the list of a Sequential, or as a member of a Graph, which calls them in turn.
///
///   nn::Block<nn::Dense<512>, nn::ReLU, nn::Dense<64>> bottom;           // y = bottom(x)
template <class... Layers> struct Block : detail::CalledInTurn<typename detail::Ordered<Layers...>::type> {};

// Declared in residual.hpp, where its docstring is. Its branches and its sum are numbered as layers, see CallRecord.
template <class... Layers> struct Residual {
  template <class D, class O> constexpr auto operator()(Tensor<D, O> x) const {
    ++x.trace->number;
    auto const y = main(x);
    if constexpr (branches::shortcut::size > 0) {
      ++x.trace->number;
      return y + shortcut(x);
    } else {
      return y + x;
    }
  }

 private:
  using branches                       = detail::Branches<detail::List<>, Layers...>;
  template <class Branch> using InTurn = detail::CalledInTurn<typename detail::OrderedList<Branch>::type>;

  InTurn<typename branches::main> main;
  InTurn<typename branches::shortcut> shortcut;
};

}  // namespace chorale::nn
