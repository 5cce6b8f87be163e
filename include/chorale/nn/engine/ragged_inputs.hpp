// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/records.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

namespace chorale::nn::graph {

/// True if a network has ragged values.
template <Counts N> constexpr bool has_ragged(Fixed<N> const& g) {
  for (auto const& value : g.values)
    if (value.ragged >= 0) return true;
  return false;
}

/// The lengths of the rows of a batch, for each ragged input of a network.
///
/// keeps     set() allocates nothing
template <std::size_t Inputs, bool HasRagged> class RaggedInputs {
 public:
  RaggedInputs(int rows, std::array<std::size_t, Inputs> const& rooms) {
    for (std::size_t i = 0; i < Inputs; ++i) {
      all_[i].room = (rooms[i] + RaggedRows::block - 1) / RaggedRows::block * RaggedRows::block;
      if (rooms[i] == 0) continue;
      starts_[i].resize(static_cast<std::size_t>(rows));
      by_length_[i].resize(static_cast<std::size_t>(rows));
      all_[i].starts    = starts_[i];
      all_[i].by_length = by_length_[i];
    }
  }

  RaggedRows const* data() const { return all_.data(); }
  RaggedRows const& operator[](std::size_t i) const { return all_[i]; }

  /// Sets the lengths of the rows of input i, which live as long as the batch.
  void set(std::size_t i, Span<int const> lengths) {
    auto& rows     = all_[i];
    rows.lengths   = lengths;
    rows.positions = 0;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      starts_[i][r] = rows.positions;
      rows.positions += static_cast<std::size_t>(lengths[r]);
    }
    std::iota(by_length_[i].begin(), by_length_[i].end(), std::size_t{0});
    std::sort(by_length_[i].begin(), by_length_[i].end(), [&](std::size_t a, std::size_t b) {
      return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;  // as std::stable_sort, which allocates
    });
  }

 private:
  std::array<RaggedRows, Inputs> all_{};
  std::array<std::vector<std::size_t>, Inputs> starts_, by_length_;
};

/// A network without ragged values has no lengths.
template <std::size_t Inputs> class RaggedInputs<Inputs, false> {
 public:
  RaggedInputs(int, std::array<std::size_t, Inputs> const&) {}
  RaggedRows const* data() const { return nullptr; }
  RaggedRows const& operator[](std::size_t) const { return none_; }
  void set(std::size_t, Span<int const>) {}

 private:
  RaggedRows none_{};
};

}  // namespace chorale::nn::graph
