// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/field.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/pjrt/copy.hpp>
#include <chorale/pjrt/device/pjrt.hpp>

#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

/// Networks on PJRT devices: with this header a compiled network, a Sequential or one derived from nn::Graph, computes
/// on Pjrt as it does on Cpu. Programs name strategies, and TPUStrategy includes it.

namespace chorale::nn::graph {

// What the copy below is made of.
template <class Net, class Losses, class Metrics> class GraphLearner<Net, Pjrt, Losses, Metrics> {
 public:
  GraphLearner(Pjrt on, Losses those, Metrics these)
      : device{std::move(on)}, losses{std::move(those)}, metrics{std::move(these)} {}

  Pjrt device;
  Losses losses;
  Metrics metrics;
};

}  // namespace chorale::nn::graph

namespace chorale::custom {

// A copy of a network derived from nn::Graph.
template <class Net, class Losses, class Metrics, class Optimizer>
class Copy<Pjrt, nn::graph::GraphLearner<Net, Pjrt, Losses, Metrics>, Optimizer, PlanView>
    : public nn::stablehlo::Copy<Net, Losses, Optimizer, Metrics> {
  using Base    = nn::stablehlo::Copy<Net, Losses, Optimizer, Metrics>;
  using Learner = nn::graph::GraphLearner<Net, Pjrt, Losses, Metrics>;

 public:
  Copy(Pjrt const& device, Learner learner, PlanView const&, Optimizer const& rule, Seed seed)
      : Base{device, std::move(learner.losses), std::move(learner.metrics), rule, seed} {}
};

}  // namespace chorale::custom

namespace chorale::nn {

namespace stablehlo {

/// A Sequential with what its loss compares, as a network of one input and one output.
template <class Net, class Loss> struct SequentialOf {
  using sequential = Net;
  struct X : nn::detail::FieldOf<typename Net::input>::type {};
  struct Y : Field<typename Loss::target, static_cast<int>(loss::targets_of<Loss>(Net::output::size))> {};
  using inputs                      = nn::detail::List<X>;
  static constexpr auto products    = graph::products_of<Net>();
  static constexpr auto activations = graph::activations_of<Net>();

  template <class D, class O> constexpr auto operator()(Tensor<D, O> x) const { return outputs<Y>(as_rows(layers(x))); }

 private:
  nn::detail::CalledInTurn<typename Net::called> layers;
  Flatten as_rows;
};

/// A batch (x, y) by the fields of a SequentialOf.
template <class Net, class Batch> struct ByFields {
  std::size_t rows, first_row;
  Batch const* batch;

  explicit ByFields(Batch const& of) : rows{of.rows}, first_row{of.first_row}, batch{&of} {}
  auto operator[](typename Net::X) const { return batch->x; }
  auto operator[](typename Net::Y) const { return batch->y; }
};

template <class Net, class Loss, class Optimizer, class... Metrics>
using SequentialCopy = Copy<SequentialOf<Net, Loss>, std::tuple<OfOutput<typename SequentialOf<Net, Loss>::Y, Loss>>,
                            Optimizer, std::tuple<OfOutput<typename SequentialOf<Net, Loss>::Y, Metrics>...>>;

}  // namespace stablehlo

// A copy of a Sequential.
template <class Net, class Loss, class Optimizer, class... Metrics>
class Instance<Pjrt, Net, Loss, Optimizer, Metrics...>
    : public stablehlo::SequentialCopy<Net, Loss, Optimizer, Metrics...> {
  using Base   = stablehlo::SequentialCopy<Net, Loss, Optimizer, Metrics...>;
  using Fields = stablehlo::SequentialOf<Net, Loss>;
  template <class Batch> static auto by_fields(Batch const& batch) { return stablehlo::ByFields<Fields, Batch>{batch}; }

 public:
  using network = Net;
  using target  = typename Loss::target;

  Instance(Pjrt const& device, Loss loss, Optimizer const& rule, std::tuple<Metrics...> measures, Seed seed)
      : Base{device,
             {{std::move(loss)}},
             std::apply(
                 [](auto const&... m) {
                   return std::tuple<OfOutput<typename Fields::Y, Metrics>...>{
                       OfOutput<typename Fields::Y, Metrics>{m}...};
                 },
                 measures),
             rule,
             seed} {}

  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready, Together together = {}) {
    return Base::value_and_gradient(by_fields(batch), first_row, std::forward<Ready>(ready), together);
  }
  template <class Batch> auto step_ahead(Batch const& batch) requires Base::runs_ahead {
    return Base::step_ahead(by_fields(batch));
  }
  template <class Batch> void evaluate(Batch const& batch, std::span<float, plan::header> sums) {
    Base::evaluate(by_fields(batch), sums);
  }
  template <class Batch> Span<float const> predict(Batch const& batch) { return Base::predict(by_fields(batch)); }
};

}  // namespace chorale::nn
