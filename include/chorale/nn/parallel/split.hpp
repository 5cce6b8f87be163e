// SPDX-License-Identifier: Apache-2.0
//
// What layers share that are split over the ranks of an axis: options, parts, and sums over parts.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/parallel/spread.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

namespace chorale::nn {

/// Option of layers that are split over an axis: what they add up over the split dimension is added in N logical parts
/// along one binary tree, so that 1, 2, 4, .. up to N ranks get the same bits. Without it 4 parts if the size is a
/// multiple of 4, or 2 if it is one of 2; as many as ranks, where the ranks do not divide that.
template <int N> struct Parts {
  static_assert(N >= 1, "chorale: Parts<N> needs at least 1");
  static constexpr int parts = N;
};

/// Option of ColumnDense: its columns are N blocks, and each rank has its part of each. For q, k and v, N is 3.
template <int N> struct Blocks {
  static_assert(N >= 1, "chorale: Blocks<N> needs at least 1");
  static constexpr int blocks = N;
};

/// Option of ColumnDense and RowDense: what comes before the first, and after the second, has a part of the positions on
/// each rank. An all_gather and a reduce_scatter take the place of all_reduce.
///
/// source    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022
struct SplitSequence {
  static constexpr bool by_sequence = true;
};

namespace detail {

template <class T> concept parts_option    = requires { T::parts; };
template <class T> concept blocks_option   = requires { T::blocks; };
template <class T> concept sequence_option = requires { T::by_sequence; };

template <class Option>
inline constexpr bool split_option =
    parts_option<Option> || blocks_option<Option> || sequence_option<Option> || initializer_option<Option>;

/// The dimensions of a value whose positions are n times as many, or 1 / n.
template <class O, int Times, int Over> struct OtherPositions;
// Its one specialisation.
template <class T, int First, int... D, int Times, int Over> struct OtherPositions<Of<T, First, D...>, Times, Over> {
  using type = Of<T, First * Times / Over, D...>;
};

/// A variable whose dimension `dim` is split over the ranks along A.
template <class A> constexpr VariableSpec split_over(VariableSpec spec, int dim, int blocks = 1) {
  spec.split = {.dim = dim, .parts = A::size, .along = A::name, .blocks = blocks};
  return spec;
}

template <class... Options> constexpr int blocks_or(int fallback) {
  (
      [&] {
        if constexpr (blocks_option<Options>) fallback = Options::blocks;
      }(),
      ...);
  return fallback;
}

/// Parts in which a dimension of that size is added up over so many ranks. See Parts.
template <class... Options> constexpr int parts_of(int size, int ranks) {
  auto parts = 0;
  (
      [&] {
        if constexpr (parts_option<Options>) parts = Options::parts;
      }(),
      ...);
  if (parts != 0) return parts;
  auto const common = std::gcd(size, 4);
  return common % ranks == 0 ? common : ranks;
}
/// True if each rank has as many whole parts of a dimension, which are one node of the tree.
constexpr bool parts_fit(int size, int parts, int ranks) {
  return size > 0 && size % parts == 0 && parts % ranks == 0 &&
         (ranks == 1 || std::has_single_bit(static_cast<unsigned>(parts / ranks)));
}

/// Sums that wait while others are computed, for a tree over so many parts.
constexpr std::size_t levels_of(int parts) {
  return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(parts - 1)));
}
/// Numbers of scratch for sums of n numbers over this rank's parts, and then over all ranks.
constexpr std::size_t scratch_of_sums(std::size_t n, int parts, int ranks) {
  return std::max(levels_of(parts / ranks) * n, along::scratch_for(n, ranks));
}

/// Adds up what part(p, to) writes for each part p in [first, first + count): n numbers each, along the tree.
template <class Part>
void add_parts(int first, int count, std::size_t n, float* sum, float* scratch, Part const& part) {
  if (count == 1) return part(static_cast<std::size_t>(first), sum);
  auto const left = along::left_of_tree(count);
  add_parts(first, left, n, sum, scratch, part);
  add_parts(first + left, count - left, n, scratch, scratch + n, part);
  for (std::size_t i = 0; i < n; ++i) sum[i] += scratch[i];
}

/// y += bias, for each of n vectors.
inline void add_bias(std::size_t n, Span<float const> bias, float* y) {
  for (std::size_t r = 0; r < n; ++r, y += bias.size())
    for (std::size_t c = 0; c < bias.size(); ++c) y[c] += bias[c];
}
/// d_bias += the sum of n vectors, one after another.
inline void add_rows(std::size_t n, float const* dy, Span<float> d_bias) {
  for (std::size_t r = 0; r < n; ++r, dy += d_bias.size())
    for (std::size_t c = 0; c < d_bias.size(); ++c) d_bias[c] += dy[c];
}

/// Sequences whose positions are split over the ranks along A.
///
///   rows of whole sequences      | r0: p0 p1 | r1: p0 p1 |
///   by ranks, as they travel     | p0: r0 r1 | p1: r0 r1 |
///
/// rows      of the batch
/// block     numbers of one rank's part of a row
template <class A, class T = float> struct SequenceParts {
  std::size_t rows, block;

  std::size_t all() const { return rows * block * ranks; }
  std::size_t own() const { return rows * block; }

  /// Whole sequences by ranks, and back.
  void sort(T const* whole, T* by_rank) const {
    each([&](std::size_t in_whole, std::size_t in_ranks) { std::copy_n(whole + in_whole, block, by_rank + in_ranks); });
  }
  void join(T const* by_rank, T* whole) const {
    each([&](std::size_t in_whole, std::size_t in_ranks) { std::copy_n(by_rank + in_ranks, block, whole + in_whole); });
  }
  /// This rank's part of whole sequences.
  void take(AxisGroup const& group, T const* whole, T* part) const {
    auto const r = static_cast<std::size_t>(group.rank);
    for (std::size_t i = 0; i < rows; ++i) std::copy_n(whole + (i * ranks + r) * block, block, part + i * block);
  }
  /// Whole sequences of all ranks' parts. scratch: all() numbers
  void gather(AxisGroup const& group, T const* part, T* whole, T* scratch) const {
    if (ranks == 1) return static_cast<void>(std::copy_n(part, all(), whole));
    along::all_gather(group, Span<T const>{part, own()}, Span<T>{scratch, all()});
    join(scratch, whole);
  }
  /// This rank's part of the sum over all ranks. scratch: all() and then scratch_for(all(), ranks) numbers
  void scatter_sum(AxisGroup const& group, T const* whole, T* part, T* scratch) const {
    if (ranks == 1) return static_cast<void>(std::copy_n(whole, all(), part));
    sort(whole, scratch);
    along::reduce_scatter(group, Span<T const>{scratch, all()}, Span<T>{part, own()},
                          Span<T>{scratch + all(), along::scratch_for(all(), A::size)});
  }

 private:
  static constexpr auto ranks = static_cast<std::size_t>(A::size);

  template <class F> void each(F const& f) const {
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t r = 0; r < ranks; ++r) f((i * ranks + r) * block, (r * rows + i) * block);
  }
};

}  // namespace detail
}  // namespace chorale::nn
