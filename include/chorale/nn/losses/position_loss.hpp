// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace chorale::loss {

/// A label of positions that do not count: loss::per_position(loss, loss::ignore_label(-100)).
class ignore_label {
 public:
  explicit constexpr ignore_label(int label) : label_{label} {}
  constexpr int value() const { return label_; }

 private:
  int label_;
};

/// A loss whose mean is over all positions of all rows, where L takes the mean of the means of rows: long rows
/// count more. Made by per_position(). On CPUs.
///
///   loss::per_position(loss::SparseCrossEntropy{}).ignore_label(-100)
///
/// outputs   (B, T, .., C) or ragged: each vector of the last dimension is a position; (B, C): each row
/// order     losses of several outputs have one divisor: all of them count positions, and as many in each batch
/// keeps     the number of positions goes with the sum, so that batches, accumulation, replicas and strategies do not
///           matter. A position with the label that is ignored has no loss and no gradient, and does not count; row
///           weights and loss::Weighted multiply losses, and do not change the number
/// source    torch.nn.CrossEntropyLoss(reduction="mean", ignore_index)
template <class L> class PerPosition {
  static_assert(
      !requires { typename L::axis; },
      "chorale: loss::per_position takes a loss of whole outputs, and each rank has a part of those of "
      "loss::SplitSparseCrossEntropy. Use that alone");

 public:
  using target                                     = typename L::target;
  static constexpr bool counts_positions           = true;
  static constexpr bool takes_logits               = requires { requires L::takes_logits; };
  static constexpr bool takes_probabilities        = requires { requires L::takes_probabilities; };
  static constexpr bool takes_binary_logits        = requires { requires L::takes_binary_logits; };
  static constexpr bool takes_binary_probabilities = requires { requires L::takes_binary_probabilities; };
  static constexpr std::size_t least_outputs       = least_outputs_of<L>();
  static constexpr std::size_t targets(std::size_t width) { return targets_of<L>(width); }

  explicit constexpr PerPosition(L loss) : loss_{std::move(loss)} {}

  /// This loss without the positions that have a label.
  constexpr PerPosition ignore_label(int label) const {
    static_assert(std::is_integral_v<target>,
                  "chorale: ignore_label is for losses of labels, such as "
                  "loss::SparseCrossEntropy, and this one compares numbers");
    auto made     = *this;
    made.ignored_ = label;
    return made;
  }

  /// Calls visit(name, value) for each option, first the options of the loss. Ranks compare these.
  void options(auto&& visit) const {
    if constexpr (NamesOptions<L>) loss_.options(visit);
    if (ignored_) visit("ignore_label", *ignored_);
  }

  /// How many of n positions count.
  std::size_t counted(std::size_t n, [[maybe_unused]] std::size_t width, [[maybe_unused]] target const* wanted) const {
    auto all = n;
    each_run(n, width, wanted, [&](Range, Range ignored) { all -= ignored.size(); });
    return all;
  }
  void check(std::size_t n, std::size_t width, target const* wanted) const {
    each_run(n, width, wanted,
             [&](Range run, Range) { check_targets(loss_, run.size(), width, wanted + run.begin * targets(width)); });
  }
  bool overwrites() const {
    if constexpr (requires { loss_.overwrites(); }) return loss_.overwrites();
    else return false;
  }
  /// The sum over the positions that count.
  template <class D>
  float compute(std::size_t n, std::size_t width, float const* y, target const* wanted, float* dy) const {
    auto sum = 0.0;
    each_run(n, width, wanted, [&](Range run, Range ignored) {
      if (run.size() != 0)
        sum += static_cast<double>(sum_of<D>(loss_, run.size(), width, y + run.begin * width,
                                             wanted + run.begin * targets(width), dy + run.begin * width));
      std::fill_n(dy + ignored.begin * width, ignored.size() * width, 0.0F);
    });
    return static_cast<float>(sum);
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, target const*, float*, SumOfRows) const {
    detail::refuse_device<D, PerPosition>();
  }

 private:
  /// Calls f(run, ignored) for runs of positions that count, each with those after it that do not: together all of n.
  template <class F>
  void each_run(std::size_t n, [[maybe_unused]] std::size_t width, [[maybe_unused]] target const* wanted, F&& f) const {
    if constexpr (std::is_integral_v<target>) {
      auto const each = targets(width);
      auto const is   = [&](std::size_t i) { return wanted[i * each] == *ignored_; };
      for (std::size_t begin = 0, end = 0, next = 0; ignored_ && begin < n; begin = end = next) {
        while (end < n && !is(end)) ++end;
        next = end;
        while (next < n && is(next)) ++next;
        f(Range{begin, end}, Range{end, next});
      }
      if (ignored_) return;
    }
    f(Range{0, n}, Range{n, n});
  }

  L loss_;
  std::optional<int> ignored_{};
};

/// The loss with its mean over all positions of all rows: see PerPosition.
template <class L> constexpr PerPosition<L> per_position(L loss) { return PerPosition<L>{std::move(loss)}; }
/// The loss with its mean over the positions of all rows that do not have this label.
template <class L> constexpr PerPosition<L> per_position(L loss, class ignore_label label) {
  return PerPosition<L>{std::move(loss)}.ignore_label(label.value());
}

}  // namespace chorale::loss
