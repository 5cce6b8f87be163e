// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
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
  /// cut     of the gradients' body
  void resize(placement::ShardCut cut, int rank) {
    cut_       = std::move(cut);
    rank_      = rank;
    auto nodes = std::vector<std::size_t>(static_cast<std::size_t>(cut_.world()));
    for (auto const& run : cut_.runs()) nodes[static_cast<std::size_t>(run.rank)] += placement::nodes_in(run.range);
    each_ = 1 + (cut_.parts() == 1 ? SquareTree::most_nodes(SquareTree::lines(cut_.elements()))
                                   : *std::ranges::max_element(nodes));
    read_.resize(nodes.size());
    numbers_.reserve(each_ * nodes.size());
  }

  placement::ShardCut const& cut() const { return cut_; }
  int rank() const { return rank_; }

  /// Begins a report without anything bad.
  ///
  /// with_norm   it will have the squares
  void begin(bool with_norm) {
    size_    = with_norm ? each_ : 1;
    written_ = 1;
    numbers_.assign(size_ * read_.size(), 0.0);
  }
  void bad(std::optional<std::size_t> variable) {
    if (variable) of(rank_)[0] = static_cast<double>(*variable + 1);
  }
  /// Adds the squares of what this rank has of one run; of all its runs in turn.
  void squares(Span<float const> run, Range range, Span<Range const> left_out = {}) {
    auto const placed = placement::Placed<placement::Sharded<0>>{run, range, range.begin};
    written_ += placement::squared_norm(placed, of(rank_).subspan(written_), left_out);
  }

  Span<double> numbers() { return numbers_; }

  /// The first variable that is not finite in any shard.
  std::optional<std::size_t> first_bad() const {
    auto first = std::optional<std::size_t>{};
    for (int rank = 0; rank < cut_.world(); ++rank)
      if (auto const found = static_cast<std::size_t>(of(rank)[0]); found != 0 && (!first || found - 1 < *first))
        first = found - 1;
    return first;
  }
  double squared_norm_of_all() {
    return placement::squared_norm_of_shards(cut_, read_, [this](int rank) { return of(rank).subspan(1); });
  }

 private:
  Span<double> of(int rank) { return Span<double>{numbers_}.subspan(static_cast<std::size_t>(rank) * size_, size_); }
  Span<double const> of(int rank) const {
    return Span<double const>{numbers_}.subspan(static_cast<std::size_t>(rank) * size_, size_);
  }

  placement::ShardCut cut_;
  int rank_         = 0;
  std::size_t each_ = 0, size_ = 0, written_ = 0;  // size_: numbers of each rank in this report
  std::vector<std::size_t> read_;
  std::vector<double> numbers_;
};

}  // namespace chorale
