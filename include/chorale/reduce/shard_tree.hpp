// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace chorale {

/// One fixed binary tree over up to 64 logical shards. Gradients that are added along it have the same bits, however
/// the shards are distributed.
///
///   node 1                        1                       the sum of all
///                          2             3
///   leaves 4 .. 7       4     5       6     7             L = 4: leaf L + s is the gradient of shard s
///
///   a rank with shards 1, 2, 3 adds 6 + 7 and sends 5 and 3: only siblings may be added
namespace shard_tree {

using Shards = std::uint64_t;  // bit s: shard s

/// All shards below a node.
constexpr Shards below(int node, int shards) {
  auto const depth = std::bit_width(static_cast<unsigned>(node)) - 1;
  auto const width = shards >> depth, first = (node - (1 << depth)) * width;
  return (width == 64 ? ~Shards{0} : (Shards{1} << width) - 1) << first;
}

/// The fewest nodes that together cover exactly these shards, from left to right.
inline void nodes_of(Shards held, int shards, std::vector<int>& into, int node = 1) {
  auto const mine = below(node, shards);
  if ((held & mine) == 0) return;
  if ((held & mine) == mine) return into.push_back(node);
  nodes_of(held, shards, into, 2 * node);
  nodes_of(held, shards, into, 2 * node + 1);
}
inline std::vector<int> nodes_of(Shards held, int shards) {
  auto nodes = std::vector<int>{};
  nodes_of(held, shards, nodes);
  return nodes;
}

/// The numbers of a rank's shards when they are distributed in order.
///
/// ends    where the shards of each rank end; empty: all ranks have as many, as nearly as possible
constexpr Range range_of(Rank rank, int ranks, int shards, Span<int const> ends = {}) {
  if (ends.empty()) return share(static_cast<std::size_t>(shards), rank, ranks);
  auto const r = static_cast<std::size_t>(rank);
  return {r == 0 ? 0 : static_cast<std::size_t>(ends[r - 1]), static_cast<std::size_t>(ends[r])};
}

/// The shards of a rank when they are distributed in order: see range_of().
constexpr Shards of_rank(Rank rank, int ranks, int shards, Span<int const> ends = {}) {
  auto const part = range_of(rank, ranks, shards, ends);
  auto held       = Shards{0};
  for (auto s = part.begin; s < part.end; ++s) held |= Shards{1} << s;
  return held;
}

/// Sums at the nodes of the tree: two siblings are added into their parent as soon as both are available.
///
/// keeps   the memory of sums that were added to others is reused
class Sums {
 public:
  struct Sum {
    int node;
    std::unique_ptr<float[]> values;
  };

  void clear() {
    for (auto& sum : sums_) spare_.push_back(std::move(sum.values));
    sums_.clear();
  }

  /// Removes all sums; from now on every sum has n elements.
  void resize(std::size_t n) {
    clear();
    if (n > room_) spare_.clear(), room_ = n;
    n_ = n;
  }

  /// Memory for the values at a node, to be filled before add().
  std::unique_ptr<float[]> memory() {
    if (spare_.empty()) return std::make_unique_for_overwrite<float[]>(room_);
    auto got = std::move(spare_.back());
    spare_.pop_back();
    return got;
  }

  void add(int node, std::unique_ptr<float[]> values) {
    for (auto i = std::size_t{0}; i < sums_.size();) {
      if (sums_[i].node != (node ^ 1)) {
        ++i;
        continue;
      }
      auto other = std::exchange(sums_[i], std::move(sums_.back())).values;
      sums_.pop_back();
      auto* const left        = node % 2 == 0 ? values.get() : other.get();
      auto const* const right = node % 2 == 0 ? other.get() : values.get();
      for (std::size_t k = 0; k < n_; ++k) left[k] += right[k];
      if (node % 2 != 0) std::swap(values, other);
      spare_.push_back(std::move(other));
      node /= 2;
      i = 0;
    }
    sums_.push_back({node, std::move(values)});
  }

  /// The values at a node, or nullptr if it has no sum.
  float const* at(int node) const {
    for (auto const& sum : sums_)
      if (sum.node == node) return sum.values.get();
    return nullptr;
  }

  std::size_t size() const { return n_; }

 private:
  std::size_t n_ = 0, room_ = 0;  // elements of a sum; of its memory
  std::vector<Sum> sums_;
  std::vector<std::unique_ptr<float[]>> spare_;
};

}  // namespace shard_tree
}  // namespace chorale
