// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace chorale {

/// What replicas tell each other of their shards of reduced gradients, before any of them updates its shard: the first
/// variable that is not finite in the shard, and the part of the global norm.
///
///   | rank 0: bad, squares ... | rank 1 | ..     each rank writes its part of the numbers; the rest is 0
///
/// order   the numbers are added up over all ranks, which changes no bit of them
class ShardReport {
 public:
  /// elements  of the gradients' body
  void resize(std::size_t elements, placement::Shard shard) {
    elements_ = elements;
    shard_    = shard;
    each_     = 1 + SquareTree::most_nodes(SquareTree::lines(elements));
    numbers_.reserve(each_ * static_cast<std::size_t>(shard.world));
  }

  /// Begins a report without anything bad.
  ///
  /// with_norm   it will have the squares
  void begin(bool with_norm) {
    size_ = with_norm ? each_ : 1;
    numbers_.assign(size_ * static_cast<std::size_t>(shard_.world), 0.0);
  }
  void bad(std::optional<std::size_t> variable) {
    if (variable) of(shard_.rank)[0] = static_cast<double>(*variable + 1);
  }
  void squares(Span<float const> body, Span<Range const> left_out = {}) {
    auto const placed = placement::Placed<placement::Sharded<0>>{body, shard_.of(elements_)};
    placement::squared_norm(placed, of(shard_.rank).subspan(1), left_out);
  }

  Span<double> numbers() { return numbers_; }

  /// The first variable that is not finite in any shard.
  std::optional<std::size_t> first_bad() const {
    auto first = std::optional<std::size_t>{};
    for (int rank = 0; rank < shard_.world; ++rank)
      if (auto const found = static_cast<std::size_t>(of(rank)[0]); found != 0 && (!first || found - 1 < *first))
        first = found - 1;
    return first;
  }
  double squared_norm_of_all() const {
    return placement::squared_norm_of_shards(elements_, shard_.world, [this](int rank) { return of(rank).subspan(1); });
  }

 private:
  Span<double> of(int rank) { return Span<double>{numbers_}.subspan(static_cast<std::size_t>(rank) * size_, size_); }
  Span<double const> of(int rank) const {
    return Span<double const>{numbers_}.subspan(static_cast<std::size_t>(rank) * size_, size_);
  }

  placement::Shard shard_;
  std::size_t elements_ = 0, each_ = 0, size_ = 0;                         // size_: numbers of each rank in this report
  std::vector<double> numbers_;
};

}  // namespace chorale
