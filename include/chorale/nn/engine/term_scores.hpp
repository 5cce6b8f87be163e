// SPDX-License-Identifier: Apache-2.0
//
// Losses and metrics of a network, computed from its outputs.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/nn/engine/queued_terms.hpp>
#include <chorale/nn/engine/term_losses.hpp>
#include <chorale/nn/losses/objective.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn::graph {

/// The states of metrics of outputs.
template <class Metrics> struct StatesOfTerms;
// The states of the metrics in a tuple of OfOutput.
template <class... Term> struct StatesOfTerms<std::tuple<Term...>> {
  using type = metric::StatesOf<decltype(Term::what)...>;
  static type make(std::tuple<Term...> const& metrics) {
    return std::apply([](auto const&... term) { return type{std::make_tuple(term.what...)}; }, metrics);
  }
};

/// Losses and metrics of the outputs of a network, sums over the rows of a batch; and the gradients by the outputs.
///
/// Outputs   what has the outputs: output(o) and d_output(o) of size(o) numbers, (rows, ..); ragged_of(o), ragged(i)
/// Losses    std::tuple of OfOutput<F, loss>
/// Metrics   std::tuple of OfOutput<F, metric>
template <class Net, class D, class Outputs, class Losses, class Metrics> class TermScores {
  using Compare                                                = TermLosses<Net, D, Outputs>;
  template <class Term> using ValueOf                          = typename Compare::template ValueOf<Term>;
  template <class Term> static constexpr std::size_t output_of = Compare::template output_of<Term>;
  static constexpr std::size_t num_losses                      = std::tuple_size_v<Losses>;

 public:
  /// Names of the losses of all outputs, if there are several, and of all metrics.
  static constexpr auto metric_names = [] {
    constexpr auto losses = std::tuple_size_v<Losses> > 1 ? std::tuple_size_v<Losses> : 0;
    auto names            = std::array<std::string_view, losses + std::tuple_size_v<Metrics>>{};
    auto at               = std::size_t{0};
    [&]<class... L, class... M>(std::type_identity<std::tuple<L...>>, std::type_identity<std::tuple<M...>>) {
      if constexpr (losses > 0) ((names[at++] = score_name<typename L::field, decltype(L::what)>), ...);
      ((names[at++] = Outputs::num_outputs > 1 ? std::string_view{score_name<typename M::field, decltype(M::what)>}
                                               : metric::name_of<decltype(M::what)>()),
       ...);
    }(std::type_identity<Losses>{}, std::type_identity<Metrics>{});
    return names;
  }();

  /// True if the losses count positions: all of them then, see loss::per_position.
  static constexpr bool counts_positions = []<class... L>(std::type_identity<std::tuple<L...>>) {
    return (graph::counts_positions<decltype(L::what)> || ...);
  }(std::type_identity<Losses>{});

  /// The loss of all outputs together, what it counts if that is positions, and the numbers of metric_names.
  struct Sums {
    float loss       = 0;
    double positions = 0;
    std::array<float, metric_names.size()> metrics{};

    Sums& operator+=(Sums const& other) {
      loss += other.loss;
      positions += other.positions;
      for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] += other.metrics[i];
      return *this;
    }
  };

  TermScores(Losses losses, Metrics metrics)
      : losses_{std::move(losses)}, metrics_{std::move(metrics)}, states_{StatesOfTerms<Metrics>::make(metrics_)} {}

  /// Scores of the same losses and metrics, whose states have counted nothing.
  TermScores another() const { return {losses_, metrics_}; }

  /// For each output whether the gradient by it may be written over it.
  auto overwritten() const { return Compare::overwritten(losses_, metrics_); }

  /// The states of the metrics.
  auto& states() { return states_; }

  /// Losses and metrics of a batch. Writes the gradients by the outputs.
  ///
  /// over    the states of metrics that count it
  /// axes    along which outputs are split
  template <class Batch> Sums of(Batch const& batch, Outputs& outputs, metric::Over over, AxisGroups axes) {
    if constexpr (QueuesWork<D>) {
      return queued(batch, outputs, over);
    } else {
      auto sums = losses(batch, outputs, axes);
      sums += metrics(batch, outputs, over);
      return sums;
    }
  }

  /// The metrics of a batch alone.
  template <class Batch> Sums metrics(Batch const& batch, Outputs& outputs, metric::Over over) {
    auto sums = Sums{};
    auto at   = num_losses > 1 ? num_losses : 0;
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& term) {
      sums.metrics[at++] = measure<I>(term, batch, outputs, over);
    });
    return sums;
  }

  /// The losses of a batch alone. Writes the gradients by the outputs.
  template <class Batch> Sums losses(Batch const& batch, Outputs& outputs, AxisGroups axes) {
    auto sums      = Sums{};
    auto has       = std::array<bool, Outputs::num_outputs>{};
    auto at        = std::size_t{0};
    auto const add = [&](auto const& term) {
      using Term           = std::remove_cvref_t<decltype(term)>;
      constexpr auto o     = output_of<Term>;
      auto const elements  = outputs.size(o);
      auto const is_second = std::exchange(has[o], true);
      auto* const dy       = is_second ? second_.take(elements) : outputs.d_output(o);
      auto const sum       = Compare::loss_of(term, batch, outputs, dy, axes, scratch_);
      if (is_second) Kernels<D>::sum(elements, outputs.d_output(o), dy, outputs.d_output(o));
      sums.loss += sum;
      if constexpr (counts_positions) {
        auto const positions = Compare::positions_of(term, batch, outputs);
        if (at == 0) sums.positions = positions;
        CHORALE_EXPECTS(positions == sums.positions,
                        "losses over positions have one divisor, but of a batch the first counts " +
                            number_text(sums.positions) + " positions and that of " +
                            type_name<typename Term::field>() + " " + number_text(positions));
      }
      if constexpr (num_losses > 1) sums.metrics[at++] = sum;
    };
    std::apply([&](auto const&... term) { (add(term), ...); }, losses_);
    for (std::size_t o = 0; o < has.size(); ++o)
      if (!has[o]) std::fill_n(outputs.d_output(o), outputs.size(o), 0.0F);
    return sums;
  }

 private:
  /// Losses and metrics of a device that QueuesWork, which adds them up by kernels where it has some.
  template <class Batch> Sums queued(Batch const& batch, Outputs& outputs, metric::Over over) {
    auto terms = QueuedTerms<D>{outputs.step()};
    auto has   = std::array<bool, Outputs::num_outputs>{};
    auto sums  = Sums{};
    auto at    = std::size_t{0};
    std::apply(
        [&](auto const&... term) {
          (
              [&] {
                using Term       = std::remove_cvref_t<decltype(term)>;
                constexpr auto o = output_of<Term>;
                auto const n     = outputs.size(o);
                auto* const dy   = has[o] ? second_.take(n) : outputs.d_output(o);
                terms.template loss<ValueOf<Term>>(term, batch, outputs.output(o), dy, n);
                if (std::exchange(has[o], true))
                  Kernels<D>::add(Kernels<D>::matrix(1, static_cast<int>(n)), dy, outputs.d_output(o));
              }(),
              ...);
        },
        losses_);
    for (std::size_t o = 0; o < has.size(); ++o)
      if (!has[o]) Kernels<D>::zero(outputs.size(o), outputs.d_output(o));
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& term) {
      using Term = std::remove_cvref_t<decltype(term)>;
      terms.template metric<ValueOf<Term>>(term, batch, outputs.output(output_of<Term>));
    });
    terms.end();
    outputs.settle();
    for (std::size_t i = 0; i < num_losses; ++i) {
      auto const sum = terms.next();
      sums.loss += sum;
      if constexpr (num_losses > 1) sums.metrics[at++] = sum;
    }
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& term) {  // the host computes those without a kernel
      auto const sum = terms.next();
      sums.metrics[at++] =
          QueuedTerms<D>::template computes<decltype(term)> ? sum : measure<I>(term, batch, outputs, over);
    });
    return sums;
  }

  /// The sum over the rows of metric I; of one with a state, which is added to, the mark of none.
  template <std::size_t I, class Term, class Batch>
  float measure(Term const& term, Batch const& batch, Outputs& outputs, metric::Over over) {
    using F                  = typename Term::field;
    using C                  = Compared<decltype(Term::what), ValueOf<Term>, F>;
    constexpr bool has_state = metric::HasState<decltype(Term::what)>;
    constexpr auto targets   = targets_in<F> / C::positions;
    auto const* const y      = outputs.output(output_of<Term>);
    auto sum                 = 0.0;
    if constexpr (ValueOf<Term>::is_ragged) {
      Compare::template each_ragged<Term>(batch, outputs, [&](std::size_t, Range row, auto const* wanted) {
        auto const groups    = C::groups(row.size());
        auto const* const at = y + row.begin * C::of_position;
        if constexpr (has_state) states_.template add<I>(over, groups, C::width, at, wanted, targets);
        else
          sum += static_cast<double>(metric::sum_of(term.what, groups, C::width, at, wanted, targets)) /
                 static_cast<double>(groups);
      });
    } else {
      auto const* const wanted = batch[F{}].data();
      auto const groups        = batch.rows * C::positions;
      if constexpr (has_state) states_.template add<I>(over, groups, C::width, y, wanted, targets);
      else
        sum = static_cast<double>(metric::sum_of(term.what, groups, C::width, y, wanted, targets)) /
              static_cast<double>(C::positions);
    }
    if constexpr (has_state) return metric::not_in_header(over);
    else return static_cast<float>(sum);
  }

  Losses losses_;
  Metrics metrics_;
  [[no_unique_address]] typename StatesOfTerms<Metrics>::type states_;
  typename Kernels<D>::Scratch second_;   // a gradient that is added to another
  typename Kernels<D>::Scratch scratch_;  // of losses of outputs that are split
};

}  // namespace chorale::nn::graph
