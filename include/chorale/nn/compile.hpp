// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/nn/flatten.hpp>
#include <chorale/nn/graph/compiled.hpp>
#include <chorale/nn/graph/layer_lines.hpp>
#include <chorale/nn/graph/units.hpp>
#include <chorale/nn/instance.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/placement/placed.hpp>

#include <array>
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

template <class P>
concept PrecisionPolicy = requires {
  P::products;
  P::activations;
};
template <class L>
concept takes_logits = requires { requires L::takes_logits; };
template <class L>
concept takes_probabilities = requires { requires L::takes_probabilities; };

/// Kind of a network's outputs, as far as it follows from the last layer, not counting layers that only flatten.
enum class Outputs { unknown, probabilities, products };

template <class N>
constexpr Outputs outputs_of(Outputs before) {
  if constexpr (std::is_same_v<typename N::layer, Flatten>) return before;
  else if constexpr (requires { requires N::layer::gives_probabilities; }) return Outputs::probabilities;
  else if constexpr (requires { N::apply::products; }) return Outputs::products;
  else return Outputs::unknown;
}
template <class... N>
constexpr Outputs outputs_of(List<N...>) {
  auto last = Outputs::unknown;
  ((last = outputs_of<N>(last)), ...);
  return last;
}

}  // namespace detail

/// A network with its loss, optimizer and metrics: a value, independent of devices and replicas. A model, see ModelOn.
///
/// source  tf.keras.Model.compile
template <class Net, class Loss, class Optimizer, class... Metrics>
struct Compiled {
  using network = Net;
  using input   = typename Net::input;
  using output  = typename Net::output;
  using target  = typename Loss::target;
  using batch   = BasicBatch<float, target>;
  template <class D>
  using instance = Instance<D, Net, Loss, Optimizer, Metrics...>;

  static constexpr auto const& plan = Net::plan;
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
  template <class D>
  instance<D> instantiate(D const& device, Seed seed) const {
    return {device, loss, optimizer, metrics, seed};
  }

  /// Creates a copy whose optimizer has the state of one shard of all variables.
  template <class D>
  instance<D> instantiate_shard(D const& device, Seed seed, placement::Shard shard) const {
    return {device, loss, optimizer, metrics, seed, shard};
  }

  /// How the network is cut into units on a device.
  template <class D>
  static constexpr UnitsView units_on() { return graph::UnitsOf<detail::SequentialTrace<Net>, D>::view; }

  /// Creates a copy that keeps a shard of its gradients and, if it `splits`, of its variables: see UnitMemory.
  template <class D>
  instance<D> instantiate_units(D const& device, Seed seed, placement::Shard shard, bool splits) const {
    return {device, loss, optimizer, metrics, seed,
            std::make_unique<UnitMemory>(PlanView{plan}, units_on<D>(), shard, Optimizer::slots, splits)};
  }

  /// Creates an instance on another device that reads the variables of `owner` in place.
  template <class D>
  instance<D> instantiate_reader(D const& device, instance<D> const& owner) const {
    return {device, owner};
  }
};

/// Combines a network with its loss, optimizer and metrics: nn::compile<Net>(loss, optimizer, metrics...).
template <class Net, class Loss, class Optimizer, class... Metrics>
Compiled<Net, Loss, Optimizer, Metrics...> compile(Loss loss, Optimizer optimizer, Metrics... metrics) {
  static_assert(
      requires {
        Net::plan;
        typename Net::nodes;
      },
      "chorale: the network argument is not a network. Write struct Net : nn::Sequential<nn::Input<...>, ...> {}");
  static_assert(requires { typename Loss::target; },
                "chorale: the loss argument is not a loss. Use loss::SparseCrossEntropy, loss::CrossEntropy, or "
                "loss::MeanSquaredError");
  if constexpr (requires { typename Loss::target; }) (metric::check_state<Metrics, typename Loss::target>(), ...);
  if constexpr (requires { typename Net::nodes; }) {
    constexpr auto outputs = detail::outputs_of(typename Net::nodes{});
    static_assert(!detail::takes_logits<Loss> || outputs != detail::Outputs::probabilities,
                  "chorale: the network ends with nn::Softmax, and this loss takes logits, to which it applies softmax "
                  "itself. Remove nn::Softmax, or use loss::SparseCrossEntropyOfProbabilities or "
                  "loss::CrossEntropyOfProbabilities");
    static_assert(!detail::takes_probabilities<Loss> || outputs != detail::Outputs::products,
                  "chorale: the network ends with logits, and this loss takes probabilities. Put nn::Softmax at its end, "
                  "or use loss::SparseCrossEntropy or loss::CrossEntropy, which take logits");
  }
  static_assert(
      optim::Optimizer<Optimizer>,
      "chorale: the optimizer argument is not an Optimizer. It needs slots, rate(Moment), global_clipnorm and "
      "update<Device>(Update). Use optim::SGD, optim::Adam, or optim::AdamW");
  static_assert(!detail::MultipliesHalves<Net> || optim::scales_loss<Optimizer>,
                "chorale: in fp16 small gradients round to zero, so the loss has to be scaled. Write "
                "optim::LossScaled{optimizer}, or use bf16");
  return {std::move(loss), std::move(optimizer), {std::move(metrics)...}};
}

/// Compiles a network in another Precision: nn::compile<Net, nn::Precision<bf16>>(loss, optimizer, metrics...).
///
/// keeps   of a network derived from nn::Graph, activations are float on every device
template <class Net, detail::PrecisionPolicy P, class Loss, class Optimizer, class... Metrics>
auto compile(Loss loss, Optimizer optimizer, Metrics... metrics) {
  using Rounded = std::conditional_t<GraphNetwork<Net>, WithProducts<Net, P::products>, WithPrecision<Net, P>>;
  return compile<Rounded>(std::move(loss), std::move(optimizer), std::move(metrics)...);
}

}  // namespace chorale::nn
