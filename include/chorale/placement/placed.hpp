// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/placement/variable_piece.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale::placement {

/// Each replica has its piece of a value, cut along an axis by layout(), and no other replica has it.
template <int along = 0> struct Sharded {
  static_assert(along >= 0, "chorale: Sharded<axis> is cut along axis 0, 1, ..");
  static constexpr int axis = along;
  static constexpr int copies_on(int) { return 1; }
  static constexpr bool writes_everywhere = false;
};

/// Each replica has a part of a value in the whole of its shape, and the value is what `operation` makes of all parts:
/// gradients before they are reduced are Partial<Op::sum>.
template <auto operation> struct Partial {
  static constexpr auto op = operation;
  static constexpr int copies_on(int replicas) { return replicas; }
  static constexpr bool writes_everywhere = false;
};

/// Which shard of flat memory a rank holds.
///
///   Shard{1, 3}.of(448)       elements 160 to 304: of 28 lines the second of three parts
///
/// keeps   shards are cut by layout(), at multiples of plan::align, so that no cache line belongs to two ranks. Memory is
///         any multiple of plan::align elements; nothing is padded for the number of ranks
struct Shard {
  int rank = 0, world = 1;

  /// throws  BadArgument when rank is not in 0 .. world - 1
  constexpr Range of(std::size_t elements) const {
    auto const lines = VariableShape{"memory", {elements / plan::align}};
    auto const mine  = layout(lines, static_cast<std::size_t>(rank), static_cast<std::size_t>(world)).along;
    return {mine.begin * plan::align, mine.end * plan::align};
  }
};

/// Flat values with the type of their layout, which decides what can be computed of them: mirrored values give the norm
/// of the whole, sharded ones need all shards for it, and partial ones have none.
template <Placement P> struct Placed {
  Span<float const> values;
};
/// Flat values; this rank has a range of them.
template <int axis> struct Placed<Sharded<axis>> {
  Span<float const> values;  // of the whole, from element `first` on
  Range mine;
  std::size_t first = 0;
};

/// Sum of the squares of mirrored values.
inline double squared_norm(Placed<Mirrored> const& x) { return SquareTree::sum(x.values); }

/// Writes what this rank has of the sum of the squares of sharded values: that at each node of SquareTree which covers
/// its shard. See squared_norm_of_shards in placement/shard_cut.hpp.
///
/// left_out  ranges of the whole that count as zeros, ascending, whose ends are multiples of plan::align
/// returns   how many numbers were written
inline std::size_t squared_norm(Placed<Sharded<0>> const& x, Span<double> to, Span<Range const> left_out = {}) {
  auto written = std::size_t{0};
  SquareTree::each_node({x.mine.begin / SquareTree::line, x.mine.end / SquareTree::line}, [&](SquareTree::Node node) {
    to[written++] = SquareTree::sum(x.values, node, left_out, x.first);
  });
  return written;
}

/// Hash of mirrored values, which replicas compare.
inline std::uint64_t hash_of(Placed<Mirrored> const& x) { return chorale::hash_of(x.values); }

namespace detail {

template <auto op> inline constexpr bool has_norm = false;

}  // namespace detail

/// Refuses the norm of partial values.
template <auto op> double squared_norm(Placed<Partial<op>> const&) {
  static_assert(detail::has_norm<op>,
                "chorale: this value is Partial: each replica has a part of it, and the norm of a "
                "part is not that of the whole. Reduce it first: all_reduce makes it Mirrored, "
                "reduce_scatter makes it Sharded");
  return 0;
}

/// Refuses the hash of partial values.
template <auto op> std::uint64_t hash_of(Placed<Partial<op>> const&) {
  static_assert(detail::has_norm<op>,
                "chorale: this value is Partial: each replica has a part of it, and their hashes "
                "differ. Reduce it first: all_reduce makes it Mirrored");
  return 0;
}

}  // namespace chorale::placement
