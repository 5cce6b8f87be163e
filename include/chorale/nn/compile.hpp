// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/model/model.hpp>
#include <chorale/nn/engine/compile_arguments.hpp>
#include <chorale/nn/engine/compiled.hpp>
#include <chorale/nn/engine/instance.hpp>
#include <chorale/nn/engine/units.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/networks/layer_list.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/step_header.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn {

namespace detail {

template <class Layers> struct LinesOf;

/// Line of one layer. The layers of a Residual follow it, numbered within it: 4.1, 4.2, and 4.3.1 within a Shortcut.
template <class L> struct LinesOfLayer {
  static void add(std::string const& number, std::vector<std::string>& lines) {
    lines.push_back("layer " + number + " " + chorale::text_of<L>());
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

/// Layers of a network without a type `layers`: the layers of its nodes, in the order of computation.
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

namespace detail {

template <class P>
concept PrecisionPolicy = requires {
  P::products;
  P::activations;
};

/// How a network ends, by its last layer, not counting layers that only flatten.
template <class N> constexpr Ending ending_of(Ending before) {
  if constexpr (std::is_same_v<typename N::layer, Flatten>) return before;
  else if constexpr (std::is_same_v<typename N::layer, Sigmoid>) return Ending::sigmoid;
  else if constexpr (requires { requires N::layer::gives_probabilities; }) return Ending::softmax;
  else if constexpr (requires { N::apply::products; }) return Ending::logits;
  else return Ending::unknown;
}
template <class... N> constexpr Ending ending_of(List<N...>) {
  auto last = Ending::unknown;
  ((last = ending_of<N>(last)), ...);
  return last;
}

}  // namespace detail

/// A network with its loss, optimizer and metrics: a value, independent of devices and replicas. A model, see ModelOn.
///
/// source  tf.keras.Model.compile
template <class Net, class Loss, class Optimizer, class... Metrics> struct Compiled {
  using network                     = Net;
  using input                       = typename Net::input;
  using output                      = typename Net::output;
  using target                      = typename Loss::target;
  using batch                       = BasicBatch<float, target>;
  template <class D> using instance = Instance<D, Net, Loss, Optimizer, Metrics...>;

  static constexpr auto const& plan         = Net::plan;
  static constexpr std::size_t output_width = output::size;
  static constexpr CountedAs counted        = counted_as(input::dims, false);
  static constexpr std::array<std::string_view, sizeof...(Metrics)> metric_names{metric::name_of<Metrics>()...};

  Loss loss;
  Optimizer optimizer;
  std::tuple<Metrics...> metrics;

  /// Lines that ranks compare before they train together: loss, optimizer and metrics with their options, variables
  /// with their shapes, layers with their options.
  std::vector<std::string> lines() const {
    auto all = std::vector<std::string>{};
    describe("loss", loss, all);
    optim::describe_optimizer(optimizer, all);
    std::apply([&](auto const&... metric) { (describe("metric", metric, all), ...); }, metrics);
    for (auto& line : lines_of(plan)) all.push_back(std::move(line));
    describe_layers<Net>(all);
    return all;
  }

  /// Creates variables and optimizer state on one device; the same seed gives the same bits everywhere.
  template <class D> instance<D> instantiate(D const& device, Seed seed) const {
    return {device, loss, optimizer, metrics, seed};
  }

  /// Creates a copy whose optimizer has the state of one shard of all variables.
  template <class D> instance<D> instantiate_shard(D const& device, Seed seed, placement::Shard shard) const {
    return {device, loss, optimizer, metrics, seed, shard};
  }

  /// How the network is cut into units on a device.
  template <class D> static constexpr UnitsView units_on() {
    return graph::UnitsOf<detail::SequentialTrace<Net>, D>::view;
  }

  /// Creates a copy that keeps a shard of its gradients and, if it `splits`, of its variables: see UnitMemory.
  template <class D>
  instance<D> instantiate_units(D const& device, Seed seed, placement::Shard shard, bool splits) const {
    return {device,    loss,
            optimizer, metrics,
            seed,      std::make_unique<UnitMemory>(PlanView{plan}, units_on<D>(), shard, Optimizer::slots, splits)};
  }

  /// Creates an instance on another device that reads the variables of `owner` in place.
  template <class D> instance<D> instantiate_reader(D const& device, instance<D> const& owner) const {
    return {device, owner};
  }
};

namespace detail {

/// Refuses a Net that is not a network, or ends with what its loss does not take. Returns false then.
template <class Net, class Loss> constexpr bool check_network() {
  constexpr bool is_network = requires {
    Net::plan;
    typename Net::nodes;
  };
  static_assert(
      is_network || requires { typename Net::refused; },
      "chorale: the network argument is not a network. Write struct Net : nn::Sequential<nn::Input<...>, ...> {}");
  if constexpr (is_network) {
    constexpr auto ending = ending_of(typename Net::nodes{});
    constexpr bool twice  = takes_logits<Loss> && ending == Ending::softmax;
    constexpr bool never  = takes_probabilities<Loss> && ending == Ending::logits;
    static_assert(!twice,
                  "chorale: the network ends with nn::Softmax, and this loss takes logits, to which it applies "
                  "softmax itself. Remove nn::Softmax, or use loss::SparseCrossEntropyOfProbabilities or "
                  "loss::CrossEntropyOfProbabilities");
    static_assert(!never,
                  "chorale: the network ends with logits, and this loss takes probabilities. Put nn::Softmax "
                  "at its end, or use loss::SparseCrossEntropy or loss::CrossEntropy, which take logits");
    if constexpr (twice || never || has_misplaced(typename Net::nodes{})) return false;
    else return check_loss_fits<Loss, ending, Net::output::size>();
  }
  return false;
}

/// Refuses a metric that lacks a member, or does not fit the network. Returns false then.
template <class Net, class M, class Target> constexpr bool check_metric() {
  if constexpr (check_metric_members<M, Target>())
    return check_metric_fits<M, ending_of(typename Net::nodes{}), Net::output::size>();
  else return false;
}

/// Returns a model of parts whose kinds check_network() and Arguments have checked.
template <class Net, class Loss, class Optimizer, class... Metrics>
auto compiled(Loss loss, Optimizer optimizer, Metrics... metrics) {
  constexpr bool many   = sizeof...(Metrics) + (graph::counts_positions<Loss> ? 1 : 0) > StepHeader<float>::max_metrics;
  constexpr bool halves = MultipliesHalves<Net> && !optim::scales_loss<Optimizer>;
  static_assert(!many, "chorale: a model has at most 14 metrics");
  static_assert(!halves,
                "chorale: in fp16 small gradients round to zero, so the loss has to be scaled. Write "
                "optim::LossScaled{optimizer}, or use bf16");
  if constexpr (many || halves) {
    return RefusedModel{};
  } else {
    (check_metric_options<ending_of(typename Net::nodes{})>(metrics), ...);
    return Compiled<Net, Loss, Optimizer, Metrics...>{std::move(loss), std::move(optimizer), {std::move(metrics)...}};
  }
}

/// Refuses the arguments of nn::compile if one is missing, lacks a member, or does not fit the network. Returns false
/// then.
template <class Net, class... Parts> constexpr bool check_members() {
  using All = std::tuple<Parts...>;
  using Of  = Arguments<Parts...>;
  if constexpr (Of::check()) {
    using Loss = std::tuple_element_t<Of::loss, All>;
    if constexpr (check_loss_members<Loss>() && check_optimizer<std::tuple_element_t<Of::optimizer, All>>() &&
                  check_network<Net, Loss>())
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return (check_metric<Net, std::tuple_element_t<Of::metrics[I], All>, typename Loss::target>() && ...);
      }(std::make_index_sequence<Of::num_metrics>{});
  }
  return false;
}

}  // namespace detail

/// Combines a network with its loss, optimizer and metrics, in any order.
///
///   nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{})
///
/// returns   a model, see ModelOn; a RefusedModel if an argument was refused
/// throws    BadArgument when a metric has a threshold of logits, and the network ends with nn::Sigmoid or nn::Softmax
template <class Net, class... Parts> auto compile(Parts... parts) {
  using Of = detail::Arguments<Parts...>;
  if constexpr (detail::check_members<Net, Parts...>()) {
    auto all = std::tie(parts...);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return detail::compiled<Net>(std::move(std::get<Of::loss>(all)), std::move(std::get<Of::optimizer>(all)),
                                   std::move(std::get<Of::metrics[I]>(all))...);
    }(std::make_index_sequence<Of::num_metrics>{});
  } else {
    return RefusedModel{};
  }
}

/// Compiles a network in another Precision: nn::compile<Net, nn::Precision<bf16>>(loss, optimizer, metrics...).
///
/// keeps   of a network derived from nn::Graph, activations are float on every device
template <class Net, detail::PrecisionPolicy P, class... Parts> auto compile(Parts... parts) {
  using Rounded = std::conditional_t<GraphNetwork<Net>, WithProducts<Net, P::products>, WithPrecision<Net, P>>;
  return compile<Rounded>(std::move(parts)...);
}

}  // namespace chorale::nn
