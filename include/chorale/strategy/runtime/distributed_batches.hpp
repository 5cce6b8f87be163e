// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/runtime/batch_shares.hpp>
#include <chorale/tensor/per_replica.hpp>

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace chorale {

/// The global batches of one pass, each dealt out to the replicas: a range of PerReplica<Batch>, the shares of the
/// replicas of this process.
///
/// keeps   shares are views, disjoint, in order, and differ by at most one row, or one logical shard, unless they have
///         weights; some may be empty
template <class Stream, class Batch>
class DistributedBatches {
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
        if (shards_ == 0) return batch_.rows_in(weights_.of(batch_.rows, rank, replicas_));
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
  iterator begin() { return iterator{*this}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  Stream stream_;
  int replicas_;
  std::vector<Rank> local_;
  Batch batch_;
  PerReplica<Batch> shares_;
  int shards_;
  BatchShares weights_;
};

}  // namespace chorale
