// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/parallel/split.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>
#include <chorale/tensor/cpu/math.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace chorale::loss {

/// loss::SparseCrossEntropy of logits that are split over the ranks along A, as logits(x) of nn::SplitEmbedding<A, ..>
/// and nn::ColumnDense<A, ..> give them. No rank gathers them: three numbers of each row travel.
///
/// logits    (B, classes / ranks); labels (B), each in [0, classes)
/// Options   nn::Parts<N>: the sum of exp(logit) is added up over N parts of the classes along one tree, which gives the
///           same bits for 1 to N ranks
/// throws    BadArgument when a label is out of range
template <class A, class... Options> struct SplitSparseCrossEntropy {
  using target                       = int;
  using axis                         = A;
  static constexpr bool takes_logits = true;
  static constexpr std::size_t targets(std::size_t) { return 1; }

  void check(std::size_t rows, std::size_t classes, int const* labels) const {
    SparseCrossEntropy{}.check(rows, classes, labels);
  }

  /// Numbers of scratch for so many rows.
  static constexpr std::size_t scratch(std::size_t rows) { return 3 * rows + along::scratch_for(2 * rows, A::size); }

  /// The sum over rows, the same on all ranks, and its gradient by this rank's logits.
  ///
  /// width     classes of this rank
  float compute_along(AxisGroup const& group, std::size_t rows, std::size_t width, float const* logits,
                      int const* labels, float* d, Span<float> memory) const {
    auto const ranks = static_cast<std::size_t>(A::size), first = width * static_cast<std::size_t>(group.rank);
    check(rows, width * ranks, labels);
    auto const top     = memory.first(rows);
    auto const sums    = memory.subspan(rows, 2 * rows);  // Σ exp(logit - top), and the label's logit
    auto const scratch = memory.subspan(3 * rows);
    for (std::size_t r = 0; r < rows; ++r) top[r] = cpu::largest(width, logits + r * width);
    along::all_reduce(group, top, scratch, along::Largest{});

    auto const parts = nn::detail::parts_of<Options...>(static_cast<int>(width) * A::size, A::size) / A::size;
    auto const each  = width / static_cast<std::size_t>(parts);
    for (std::size_t r = 0; r < rows; ++r) {
      auto const* const x = logits + r * width;
      auto* const e       = d + r * width;
      for (std::size_t c = 0; c < width; ++c) e[c] = cpu::exp(x[c] - top[r]);
      sums[r]          = sum_of_parts(0, parts, each, e);
      auto const label = static_cast<std::size_t>(labels[r]) - first;  // huge below the first
      sums[rows + r]   = label < width ? x[label] : 0.0F;
    }
    along::all_reduce(group, sums, scratch);

    return static_cast<float>(sum_over(rows, [&](std::size_t r) {
      auto* const e    = d + r * width;
      auto const share = 1 / sums[r];
      for (std::size_t c = 0; c < width; ++c) e[c] *= share;
      if (auto const label = static_cast<std::size_t>(labels[r]) - first; label < width) e[label] -= 1;
      return top[r] + std::log(sums[r]) - sums[rows + r];
    }));
  }

 private:
  static float sum_of_parts(int first, int count, std::size_t each, float const* e) {
    if (count == 1) {
      auto const* const part = e + static_cast<std::size_t>(first) * each;
      return cpu::sum_of(each, [part](std::size_t i) { return part[i]; });
    }
    auto const left = along::left_of_tree(count);
    return sum_of_parts(first, left, each, e) + sum_of_parts(first + left, count - left, each, e);
  }
};

}  // namespace chorale::loss
