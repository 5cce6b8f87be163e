// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/networks/block.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/tensor/kernels.hpp>

#include <string_view>

namespace chorale::nn::detail {

/// First layer: converts the inputs to the type in which the network stores activations.
struct ToActivations {
  static constexpr std::string_view name = "rounded";

  template <class In> static constexpr void check() {}
  template <class In> using apply = SameShape<In>;
  template <class D, class In> struct stage : Kernels<D>::ToActivations {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site) : Kernels<D>::ToActivations{site.runtime, site.in} {}
  };
};

template <class S> struct FieldOf;
template <int... D> struct FieldOf<Shape<D...>> {
  using type = Field<float, D...>;
};

/// A Sequential as a network with one input and one output, which is traced and executed like any other.
template <class Net> struct SequentialTrace {
  using sequential = Net;
  struct X : FieldOf<typename Net::input>::type {};
  struct Y : FieldOf<typename Net::output>::type {};
  using inputs = List<X>;

  static constexpr auto products    = graph::products_of<Net>();
  static constexpr auto activations = graph::activations_of<Net>();

  template <class D, class O> constexpr auto operator()(Tensor<D, O> x) const {
    if constexpr (graph::keeps_halves<D, Net>) {
      --x.trace->number;  // not a layer of the network
      return outputs<Y>(layers(to_activations(x)));
    } else {
      return outputs<Y>(layers(x));
    }
  }

 private:
  Layer<ToActivations> to_activations;
  CalledInTurn<typename Net::called> layers;
};

/// A network as one that is traced: itself if it is derived from nn::Graph, and a SequentialTrace of a Sequential.
template <class Net> struct TracedNetwork {
  using type = SequentialTrace<Net>;
};
template <GraphNetwork Net> struct TracedNetwork<Net> {
  using type = Net;
};

}  // namespace chorale::nn::detail
