// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/per_replica.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
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
  BatchShares() = default;  // even shares

  /// weights   of all replicas, by rank
  ///
  /// throws    BadArgument when a weight is not a number of 0 or more, or all are 0 or too large to be added up
  explicit BatchShares(std::vector<double> const& weights) {
    auto sum = 0.0;
    for (auto const w : weights) {
      CHORALE_EXPECTS(std::isfinite(w) && w >= 0, "a weight of a share is 0 or more, got " + std::to_string(w));
      ends_.push_back(sum += w);
    }
    CHORALE_EXPECTS(sum > 0 && std::isfinite(sum), "shares of " + std::to_string(weights.size()) +
                                                       " replicas have weights of " + std::to_string(sum) + " in all");
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

  /// Where the share of each replica of n things ends; empty if shares are even.
  std::vector<int> ends(int n, int replicas) const {
    auto all = std::vector<int>{};
    for (Rank rank = 0; !even() && rank < replicas; ++rank)
      all.push_back(static_cast<int>(of(static_cast<std::size_t>(n), rank, replicas).end));
    return all;
  }

 private:
  std::vector<double> ends_;  // sums of weights; empty: even shares
};

/// The global batches of one pass, each dealt out to the replicas: a range of PerReplica<Batch>, the shares of the
/// replicas of this process.
///
/// keeps   shares are views, disjoint, in order, and differ by at most one row, or one logical shard, unless they have
///         weights; some may be empty
template <class Stream, class Batch> class DistributedBatches {
 public:
  /// replicas  in the whole job; local: ranks of the replicas of this process
  /// shards    logical shards that are dealt out whole; 0: rows are dealt out one by one
  DistributedBatches(Stream stream, int replicas, std::vector<Rank> local, int shards, BatchShares weights = {})
      : stream_{std::move(stream)}, replicas_{replicas}, local_{std::move(local)}, shares_(local_.size()),
        shards_{shards}, weights_{std::move(weights)} {}

  /// Returns the shares of the next batch, or null at the end of the pass; valid until the next call.
  PerReplica<Batch>* next() {
    batch_ = Batch{};
    if (!stream_.next(batch_)) return nullptr;
    for (std::size_t i = 0; i < local_.size(); ++i) shares_[i] = share_of(local_[i]);
    return &shares_;
  }

  /// Returns the share of any replica of the job in the batch that next() returned.
  Batch share_of(Rank rank) const {
    if (!weights_.even()) {
      if constexpr (requires { batch_.rows_in(Range{}); })
        return batch_.rows_in(shards_ == 0 ? weights_.of(batch_.rows, rank, replicas_) : rows_of_shards(rank));
      CHORALE_EXPECTS(false, "this dataset's batches can only be dealt out evenly");
    }
    if constexpr (requires { batch_.part(rank, replicas_, shards_); }) {
      return shards_ == 0 ? batch_.part(rank, replicas_) : batch_.part(rank, replicas_, shards_);
    } else {
      CHORALE_EXPECTS(shards_ == 0, "this dataset's batches cannot be dealt out in logical shards");
      return batch_.part(rank, replicas_);
    }
  }

  class iterator {
   public:
    using value_type        = PerReplica<Batch>;
    using difference_type   = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    explicit iterator(DistributedBatches& from) : from_{&from}, at_{from.next()} {}
    PerReplica<Batch>& operator*() const { return *at_; }
    iterator& operator++() {
      at_ = from_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return at_ == nullptr; }

   private:
    DistributedBatches* from_;
    PerReplica<Batch>* at_;
  };
  iterator begin() & { return iterator{*this}; }  // refers to these batches: not of temporaries
  std::default_sentinel_t end() const { return {}; }

 private:
  /// The rows of the logical shards that a replica has by its weight.
  Range rows_of_shards(Rank rank) const {
    auto const mine = weights_.of(static_cast<std::size_t>(shards_), rank, replicas_);
    return {share(batch_.rows, static_cast<int>(mine.begin), shards_).begin,
            share(batch_.rows, static_cast<int>(mine.end), shards_).begin};
  }

  Stream stream_;
  int replicas_;
  std::vector<Rank> local_;
  Batch batch_;
  PerReplica<Batch> shares_;
  int shards_;
  BatchShares weights_;
};

}  // namespace chorale
