// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/nn/networks/layer_list.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/tensor/kernels.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale::nn {

namespace detail {

template <class Layers> struct LinesOf;

/// Line of one layer. The layers of a Residual follow it, numbered within it: 4.1, 4.2, and 4.3.1 within a Shortcut.
template <class L> struct LinesOfLayer {
  static void add(std::string const& number, std::vector<std::string>& lines) {
    lines.push_back("layer " + number + " " + text_of<L>());
  }
};
template <class... L> struct LinesOfLayer<Residual<L...>> {
  static void add(std::string const& number, std::vector<std::string>& lines) {
    lines.push_back("layer " + number + " Residual");
    LinesOf<List<L...>>::add(number + ".", lines);
  }
};
template <class... L> struct LinesOfLayer<Shortcut<L...>> {
  static void add(std::string const& number, std::vector<std::string>& lines) {
    lines.push_back("layer " + number + " Shortcut");
    LinesOf<List<L...>>::add(number + ".", lines);
  }
};

template <class... L> struct LinesOf<List<L...>> {
  static void add(std::string const& before, std::vector<std::string>& lines) {
    add_all(typename Flat<List<>, L...>::type{}, before, lines);
  }

 private:
  template <class... All>
  static void add_all(List<All...>, std::string const& before, std::vector<std::string>& lines) {
    auto number = std::size_t{0};
    (LinesOfLayer<All>::add(before + std::to_string(++number), lines), ...);
  }
};

/// Layers of a network without a type `layers`: those of its nodes, in the order of computation.
template <class Nodes> struct LayersOfNodes;
template <class... N> struct LayersOfNodes<List<N...>> {
  using type = List<typename N::layer...>;
};

template <class Net> struct WrittenLayers : LayersOfNodes<typename Net::nodes> {};
template <class Net> requires requires { typename Net::layers; } struct WrittenLayers<Net> {
  using type = typename Net::layers;
};

}  // namespace detail

/// Lines for the layers of a network in the order in which they are written, and for the numbers it computes in.
///
///   layer 0 Input<28,28,1>
///   layer 1 Conv2D<32,3,Pad<0>,Stride<1>,GlorotUniform>
///   layer 2 ReLU
///   products f32
///   activations f32
///
/// keeps   complete: layers have no state, so the name of a layer's type describes it fully
template <class Net> void describe_layers(std::vector<std::string>& lines) {
  auto input = std::string{"layer 0 Input<"};
  for (auto const d : Net::input::dims) input.append(input.back() == '<' ? "" : ",") += std::to_string(d);
  lines.push_back(input + ">");
  detail::LinesOf<typename detail::WrittenLayers<Net>::type>::add("", lines);

  auto products    = Products::f32;
  auto activations = Elements::f32;
  if constexpr (requires {
                  { Net::products } -> std::convertible_to<Products>;
                })
    products = Net::products;
  if constexpr (requires {
                  { Net::activations } -> std::convertible_to<Elements>;
                })
    activations = Net::activations;
  lines.push_back("products " + std::string{text_of(products)});
  lines.push_back("activations " + std::string{text_of(activations)});
}

}  // namespace chorale::nn
