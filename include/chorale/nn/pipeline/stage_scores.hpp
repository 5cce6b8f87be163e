// SPDX-License-Identifier: Apache-2.0
//
// Losses and metrics of the stage of a pipeline that has the outputs of the network.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/graph.hpp>
#include <chorale/nn/graph/compared.hpp>
#include <chorale/nn/graph/learner.hpp>
#include <chorale/nn/graph/term_losses.hpp>
#include <chorale/nn/metric.hpp>
#include <chorale/nn/metric_state.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn::graph {

/// The outputs of a network on the stage that has them all, as losses and metrics read them.
template <class Net, class D>
struct StageOutputs {
  static constexpr std::size_t num_outputs = Traced<Net, NoDevice>::counts.outputs;
  using Overwritten = std::array<bool, num_outputs>;
  static constexpr int ragged_of(std::size_t) { return -1; }
  /// Elements of one row of an output.
  static std::size_t width(std::size_t o) {
    auto const& g = Lowered<Net, D>::calls;
    return g.values[at(g.outputs[o])].size;
  }

  /// Those that the last section has, or that arrive at it.
  template <class Executor>
  static StageOutputs of(Section const& section, Executor& executor) {
    auto made       = StageOutputs{};
    auto const& out = section.departures();
    auto const& in  = section.arrivals();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i].reader < 0) {
        made.y[at(-1 - out[i].reader)]  = executor.departure(i);
        made.dy[at(-1 - out[i].reader)] = executor.d_departure(i);
      }
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i].reader < 0) {
        made.y[at(-1 - in[i].reader)]  = executor.arrival(i);
        made.dy[at(-1 - in[i].reader)] = executor.d_arrival(i);
      }
    return made;
  }

  std::array<float const*, num_outputs> y{};
  std::array<float*, num_outputs> dy{};

  float const* output(std::size_t o) const { return y[o]; }
  RaggedRows const& ragged(std::size_t) const { return none; }

 private:
  static inline RaggedRows const none{};
};

/// Compares the outputs of a micro-batch with its fields.
///
/// Losses    std::tuple of OfOutput<F, loss>
/// Metrics   std::tuple of OfOutput<F, metric>
template <class Net, class D, class Losses, class Metrics>
class StageScores {
  using Outputs = StageOutputs<Net, D>;
  using Compare = TermLosses<Net, D, Outputs>;
  template <class Term>
  using ValueOf = typename Compare::template ValueOf<Term>;

 public:
  /// Sums over rows: the loss and, as the learner names them, the losses of outputs and the metrics.
  struct Sums {
    float loss = 0;
    std::array<float, GraphLearner<Net, D, Losses, Metrics>::metric_names.size()> metrics{};

    Sums& operator+=(Sums const& other) {
      loss += other.loss;
      for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] += other.metrics[i];
      return *this;
    }
  };

  StageScores(Losses losses, Metrics metrics)
      : losses_{std::move(losses)}, metrics_{std::move(metrics)}, states_{StatesOfTerms<Metrics>::make(metrics_)} {}

  /// The states of the metrics.
  auto& states() { return states_; }

  /// Losses and metrics. Writes the gradients by the outputs.
  template <class Batch>
  Sums sums_of(Outputs const& outputs, Batch const& batch, metric::Over over) {
    auto sums      = Sums{};
    auto has       = std::array<bool, Outputs::num_outputs>{};
    auto i         = std::size_t{0};
    auto const add = [&](auto const& term) {
      using Term           = std::remove_cvref_t<decltype(term)>;
      constexpr auto o     = Compare::template output_of<Term>;
      auto const elements  = batch.rows * Outputs::width(o);
      auto const is_second = std::exchange(has[o], true);
      auto* const dy       = is_second ? second_.take(elements) : outputs.dy[o];
      auto const sum       = Compare::loss_of(term, batch, outputs, dy, {}, scratch_);
      if (is_second) Kernels<D>::sum(elements, outputs.dy[o], dy, outputs.dy[o]);
      sums.loss += sum;
      if constexpr (std::tuple_size_v<Losses> > 1) sums.metrics[i++] = sum;
    };
    std::apply([&](auto const&... term) { (add(term), ...); }, losses_);
    for (std::size_t o = 0; o < has.size(); ++o)
      if (!has[o]) std::fill_n(outputs.dy[o], batch.rows * Outputs::width(o), 0.0F);
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& term) {
      sums.metrics[i++] = measure<I>(term, batch, outputs, over);
    });
    return sums;
  }

 private:
  template <std::size_t I, class Term, class Batch>
  float measure(Term const& term, Batch const& batch, Outputs const& outputs, metric::Over over) {
    using F                  = typename Term::field;
    using C                  = Compared<decltype(Term::what), ValueOf<Term>, F>;
    constexpr auto targets   = targets_in<F> / C::positions;
    auto const* const y      = outputs.output(Compare::template output_of<Term>);
    auto const* const wanted = batch[F{}].data();
    auto const groups        = batch.rows * C::positions;
    if constexpr (metric::HasState<decltype(Term::what)>) {
      states_.template add<I>(over, groups, C::width, y, wanted, targets);
      return metric::not_in_header(over);
    } else {
      return metric::sum_of(term.what, groups, C::width, y, wanted, targets) / static_cast<float>(C::positions);
    }
  }

  Losses losses_;
  Metrics metrics_;
  [[no_unique_address]] typename StatesOfTerms<Metrics>::type states_;
  typename Kernels<D>::Scratch second_;                                    // a gradient that is added to another
  typename Kernels<D>::Scratch scratch_;                                   // of losses
};

}  // namespace chorale::nn::graph
