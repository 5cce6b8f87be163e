// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Number of rows that a replica has computed, and the seconds that they took.
struct Throughput {
  double rows = 0, seconds = 0;
};

/// Rows of a batch that each replica gets: as many as all others, or in proportion to weights.
///
/// keeps   shares are disjoint, in the order of ranks, and cover the batch; the same weights give the same shares
///         everywhere. Gradients are sums over rows, so a step's result depends on the shares only by rounding
class BatchShares {
 public:
  BatchShares() = default;                                                 // even shares

  /// weights   of all replicas, by rank
  ///
  /// throws    BadArgument when a weight is not a number of 0 or more, or all are 0
  explicit BatchShares(std::vector<double> const& weights) {
    auto sum = 0.0;
    for (auto const w : weights) {
      CHORALE_EXPECTS(std::isfinite(w) && w >= 0, "a weight of a share is 0 or more, got " + std::to_string(w));
      ends_.push_back(sum += w);
    }
    CHORALE_EXPECTS(sum > 0, "shares of " + std::to_string(weights.size()) + " replicas have weights of 0 in all");
  }

  /// Returns shares in proportion to speed. A replica that had no rows, or is very slow, gets a tenth of an even share:
  /// it may become faster.
  static BatchShares by(std::vector<Throughput> const& speeds) {
    auto weights = std::vector<double>{};
    auto sum     = 0.0;
    for (auto const& speed : speeds) {
      weights.push_back(speed.rows > 0 && speed.seconds > 0 ? speed.rows / speed.seconds : 0);
      sum += weights.back();
    }
    if (sum == 0) return {};
    for (auto& w : weights) w = std::max(w, 0.1 * sum / static_cast<double>(speeds.size()));
    return BatchShares{weights};
  }

  bool even() const { return ends_.empty(); }

  Range of(std::size_t rows, Rank rank, int replicas) const {
    if (even()) return share(rows, rank, replicas);
    CHORALE_EXPECTS(ends_.size() == static_cast<std::size_t>(replicas),
                    "there are weights for " + std::to_string(ends_.size()) + " shares, but " +
                        std::to_string(replicas) + " replicas");
    auto const end_of = [&](Rank r) {
      if (r < 0) return std::size_t{0};
      if (r + 1 == replicas) return rows;
      auto const part = ends_[static_cast<std::size_t>(r)] / ends_.back();
      return static_cast<std::size_t>(std::llround(static_cast<double>(rows) * part));
    };
    return {end_of(rank - 1), end_of(rank)};
  }

 private:
  std::vector<double> ends_;                                               // sums of weights; empty: even shares
};

}  // namespace chorale
