// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/field.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/networks/block.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/nn/trace/trace.hpp>

#include <array>
#include <cstddef>

namespace chorale::nn {

/// A network with any number of inputs and outputs. A user derives a struct from it, whose members are layers, and
/// whose call operator says which layer takes what. The compiler runs that operator once, and writes down the calls.
///
///   struct Title : Field<int, 40> {};                        // (B, 40) ids
///   struct Tags : Field<float, 12> {};
///   struct Priority : Field<float, 1> {};
///   struct Tickets : nn::Graph<Title, Tags> {                // a parameter for each field, in this order
///     nn::Embedding<10'000, 64> words;
///     nn::Dense<1> priority{"priority"};                     // a name is for files; without it: dense, dense_1
///
///     constexpr auto operator()(auto title, auto tags) const {
///       auto const text = nn::reshape<40 * 64>(words(title));
///       return nn::outputs<Priority>(priority(nn::concatenate(text, tags)));
///     }
///   };
///
/// keeps     an object is one layer: called twice, it shares its variables. A temporary, as in nn::Dense<8>{}(x), is a
///           separate layer at each call. Blocks of layers are structs with a call operator, or nn::Block; loops over
///           a std::array of them are allowed
/// source    the functional interface of Keras; torch.nn.Module
template <class... F> struct Graph {
  static_assert((IsField<F> && ...), "chorale: nn::Graph<...> takes fields. Write struct Title : Field<int, 40> {}");
  static_assert(sizeof...(F) > 0, "chorale: nn::Graph<...> needs at least one field");

  using inputs = detail::List<F...>;
};

/// A struct that is derived from nn::Graph.
template <class Net> concept GraphNetwork = requires { typename Net::inputs; } && !requires { typename Net::nodes; };

/// The outputs of a network, each named by the field that it predicts: nn::outputs<Priority, Department>(a, b).
template <class... F, class D, class... O> constexpr auto outputs(Tensor<D, O>... y) {
  static_assert(sizeof...(F) == sizeof...(O), "chorale: nn::outputs<Fields...>(...) needs a field for each output");
  if constexpr ((graph::has_spread<O> || ...)) return graph::SpreadOutputs<D, detail::List<F...>, O...>::run(y...);
  else return Outputs<D, detail::List<F...>, O...>{{y.value...}};
}

/// The plan of a network derived from nn::Graph: its variables, their names, places and buckets, as a constexpr value.
///
///   static_assert(nn::plan_of<Gpt2>.parameters == 124'439'808);
template <GraphNetwork Net> inline constexpr auto plan_of = graph::plan_of<Net>();

namespace graph {

/// The plan of the variables of a traced network: its own, or the plan of the Sequential that it stands for.
template <class Net> constexpr auto const& plan_for() {
  if constexpr (requires { typename Net::sequential; }) return Net::sequential::plan;
  else return nn::plan_of<Net>;
}

}  // namespace graph

}  // namespace chorale::nn
