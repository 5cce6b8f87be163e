// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

namespace chorale::nn::graph {

/// Compares the outputs of a network with the fields of a batch: losses of terms, which are OfOutput<F, loss>.
///
/// Executing   the executor that has the outputs
template <class Net, class D, class Executing> struct TermLosses {
  using All                                                    = OutputsIn<Net>;
  template <class Term> static constexpr std::size_t output_of = index_of<typename Term::field, typename All::fields>;
  template <class Term> using ValueOf = typename Nth<output_of<Term>, typename All::values>::type;

  /// The rows of output o that belong to row r of the batch: its positions, or itself.
  static Range row_of(Executing const& executor, std::size_t o, std::size_t r) {
    if (Executing::ragged_of(o) < 0) return {r, r + 1};
    auto const& rows = executor.ragged(at(Executing::ragged_of(o)));
    return {rows.starts[r], rows.starts[r] + static_cast<std::size_t>(rows.lengths[r])};
  }

  /// Calls run(row, its positions, targets) for each row that has positions, of a term with a ragged output.
  ///
  /// throws  BadArgument when a row has another number of targets than of outputs
  template <class Term, class Batch, class Run>
  static void each_ragged(Batch const& batch, Executing const& executor, Run&& run) {
    using F            = typename Term::field;
    auto const wanted  = batch[F{}].data();
    auto const lengths = batch.lengths(F{});
    for (std::size_t r = 0; r < batch.rows; ++r) {
      auto const row = row_of(executor, output_of<Term>, r);
      CHORALE_EXPECTS(row.size() == static_cast<std::size_t>(lengths[r]),
                      "row " + std::to_string(r) + " of the batch has length " + std::to_string(lengths[r]) +
                          " for field " + type_name<F>() + ", but the output that it is compared with has length " +
                          std::to_string(row.size()));
      if (row.size() > 0) run(r, row, wanted + r * batch.width(F{}));
    }
  }

  /// The loss of one term, a sum over the rows or positions that it counts, and its gradient by the output.
  ///
  /// axes, scratch   for a loss of outputs that are split over the ranks of an axis
  template <class Term, class Batch>
  static float loss_of(Term const& term, Batch const& batch, Executing const& executor, float* dy, AxisGroups axes,
                       typename Kernels<D>::Scratch& scratch) {
    using W             = typename Term::row_weight;
    using C             = Compared<decltype(Term::what), ValueOf<Term>, typename Term::field>;
    auto const* const y = executor.output(output_of<Term>);
    if constexpr (ValueOf<Term>::is_ragged) {
      auto sum = 0.0;
      each_ragged<Term>(batch, executor, [&](std::size_t r, Range row, auto const* wanted) {
        auto const groups = C::groups(row.size()), numbers = row.size() * C::of_position;
        auto* const d = dy + row.begin * C::of_position;
        auto factor   = term.weight;
        if constexpr (!counts_positions<decltype(Term::what)>) factor /= static_cast<float>(groups);
        if constexpr (!std::is_void_v<W>) factor *= static_cast<float>(batch[W{}][r]);
        auto const of_row =
            loss::sum_of<D>(term.what, groups, numbers / groups, y + row.begin * C::of_position, wanted, d);
        Kernels<D>::multiply(numbers, d, factor);
        sum += static_cast<double>(of_row * factor);
      });
      return static_cast<float>(sum);
    } else {
      return loss_of_fixed(term, batch, y, dy, axes, scratch);
    }
  }

  /// The positions of a batch that a term counts.
  template <class Term, class Batch>
  static double positions_of(Term const& term, Batch const& batch, Executing const& executor) {
    using C = Compared<decltype(Term::what), ValueOf<Term>, typename Term::field>;
    if constexpr (ValueOf<Term>::is_ragged) {
      auto sum = std::size_t{0};
      each_ragged<Term>(batch, executor, [&](std::size_t, Range row, auto const* wanted) {
        sum += term.what.counted(C::groups(row.size()), C::width, wanted);
      });
      return static_cast<double>(sum);
    } else {
      return static_cast<double>(
          term.what.counted(batch.rows * C::positions, C::width, batch[typename Term::field{}].data()));
    }
  }

  /// Outputs that one loss reads, and no metric, and over which it may write its gradient.
  template <class Losses, class Metrics>
  static typename Executing::Overwritten overwritten(Losses const& losses, Metrics const& metrics) {
    auto may = typename Executing::Overwritten{};
    auto all = std::array<int, Executing::num_outputs>{};
    if constexpr (!QueuesWork<D>) {
      std::apply(
          [&](auto const&... term) {
            (
                [&] {
                  constexpr auto o = output_of<std::remove_cvref_t<decltype(term)>>;
                  if constexpr (requires {
                                  { term.what.overwrites() } -> std::same_as<bool>;
                                })
                    may[o] = term.what.overwrites();
                  ++all[o];
                }(),
                ...);
          },
          losses);
      std::apply([&](auto const&... term) { (++all[output_of<std::remove_cvref_t<decltype(term)>>], ...); }, metrics);
    }
    for (std::size_t o = 0; o < may.size(); ++o) may[o] = may[o] && all[o] == 1;
    return may;
  }

 private:
  template <class Term, class Batch>
  static float loss_of_fixed(Term const& term, Batch const& batch, float const* y, float* dy, AxisGroups axes,
                             typename Kernels<D>::Scratch& scratch) {
    using F               = typename Term::field;
    using W               = typename Term::row_weight;
    using C               = Compared<decltype(Term::what), ValueOf<Term>, F>;
    constexpr auto of_row = ValueOf<Term>::size;
    auto const* wanted    = batch[F{}].data();
    auto const scaled     = term.weight / static_cast<float>(counts_positions<decltype(Term::what)> ? 1 : C::positions);
    auto const compute    = [&](std::size_t first, std::size_t rows, float factor) {
      auto* const d  = dy + first * of_row;
      auto const sum = [&] {
        auto const n = rows * C::positions;
        if constexpr (requires { typename decltype(term.what)::axis; }) {
          using A             = typename decltype(term.what)::axis;
          auto const numbers  = term.what.scratch(n);
          auto const* const x = y + first * of_row;
          return term.what.compute_along(group_along<A>(axes), n, C::width, x, wanted + first * F::size, d,
                                            Span<float>{scratch.take(numbers), numbers});
        } else {
          return loss::sum_of<D>(term.what, n, C::width, y + first * of_row, wanted + first * F::size, d);
        }
      }();
      if (factor != 1) Kernels<D>::multiply(rows * of_row, d, factor);
      return sum * factor;
    };
    if constexpr (std::is_void_v<W>) {
      return compute(0, batch.rows, scaled);
    } else {
      auto const weights = batch[W{}];
      return static_cast<float>(
          sum_over(batch.rows, [&](std::size_t r) { return compute(r, 1, scaled * static_cast<float>(weights[r])); }));
    }
  }
};

}  // namespace chorale::nn::graph
