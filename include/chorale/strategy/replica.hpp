// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace chorale {

/// What one share of a batch gave: the loss, a sum over its rows, and gradients, sums over the same rows.
struct ValueAndGradient {
  Sum<float> value;
  Gradients gradients;
};

/// Gradients that were reduced so far: while backward still computed, and in all.
struct Traffic {
  std::size_t early_bytes = 0, bytes = 0;
};

namespace detail {

/// An algorithm that rounds or leaves out what it sends, and names an exact one for what must arrive as it is.
template <class R>
concept lossy = requires { typename R::exact; };

template <class R, class E>
struct ReducerOf {
  using type = BucketedReducer<R, E>;
};
template <class R, class E>
  requires requires { requires R::own_thread; }
struct ReducerOf<R, E> {
  using type = ThreadedReducer<R, E>;
};

/// The gradients of one model on their way: in buckets that leave during backward. Under a lossy algorithm header and
/// trailer, which count rows and name faults, take a message of their own.
template <class R, class E>
class BucketLane {
  static constexpr std::size_t skipped = lossy<R> ? plan::header : 0, left = lossy<R> ? plan::trailer : 0;

 public:
  BucketLane(R const& reduce, E& at, Gradients const& gradients, Tag first)
      : at_{&at}, tag_{first}, end_{gradients.values.size() - left},
        reducer_{reduce, at, ends(gradients), gradients.values.subspan(skipped, end_ - skipped), Op::sum, first} {}

  template <class Model, class Batch>
  Sum<float> compute(Model& model, Batch const& batch) {
    return model.value_and_gradient(batch, batch.first_row, [](std::size_t) {});
  }
  template <class Model, class Batch>
  Sum<float> compute_ahead(Model& model, Batch const& batch) {
    if (at_->size() == 1) return compute(model, batch);
    reducer_.begin();
    begun_ = true;
    return model.value_and_gradient(batch, batch.first_row,
                                    [this](std::size_t end) { reducer_.ready(std::min(end, end_) - skipped); });
  }

  void reduce(Gradients const& gradients, Traffic& traffic) {
    if (at_->size() == 1) return;
    if (!std::exchange(begun_, false)) reducer_.begin();
    reducer_.finish();
    if constexpr (lossy<R>) reduce_exactly(gradients);
    traffic.early_bytes += reducer_.overlap().bytes;
    traffic.bytes += gradients.values.size_bytes();
  }

 private:
  std::vector<std::size_t> ends(Gradients const& gradients) const {
    auto all = std::vector<std::size_t>{};
    for (auto const end : gradients.ends) all.push_back(std::min(end, end_) - skipped);
    return all;
  }

  void reduce_exactly(Gradients const& gradients) {
    auto const header = gradients.values.template first<plan::header>();
    auto const trailer = gradients.trailer();
    auto both = std::array<float, plan::header + plan::trailer>{};
    std::copy(trailer.begin(), trailer.end(), std::copy(header.begin(), header.end(), both.begin()));
    typename R::exact{}.all_reduce(*at_, Span<float>{both}, Op::sum, tag_);
    std::copy_n(both.begin(), plan::header, header.begin());
    std::copy_n(both.begin() + plan::header, plan::trailer, trailer.begin());
  }

  E* at_;
  Tag tag_;
  std::size_t end_;                                                        // of what the reducer gets
  bool begun_ = false;
  typename ReducerOf<R, E>::type reducer_;
};

/// The gradients of one model under Reproducible: of each logical shard by itself, then added up along the tree.
template <class R, class E>
class ShardLane {
 public:
  ShardLane(R const& reduce, E& at, Gradients const&, Tag first) : reduce_{reduce}, at_{&at}, tag_{first} {}

  template <class Model, class Batch>
  Sum<float> compute(Model& model, Batch const& batch) {
    constexpr int L   = R::logical_shards;
    auto const values = model.gradients().values;
    auto const mine   = share(static_cast<std::size_t>(L), at_->rank(), at_->size());
    auto const whole  = batch.global_rows != 0 ? batch.global_rows : batch.rows;
    auto loss         = Sum<float>{};
    sums_.resize(values.size());
    for (auto s = static_cast<int>(mine.begin); s < static_cast<int>(mine.end); ++s) {
      auto const rows  = share(whole, s, L);
      auto const shard = batch.rows_in({rows.begin - batch.first_row, rows.end - batch.first_row});
      loss += model.value_and_gradient(shard, shard.first_row, [](std::size_t) {});
      auto sum = sums_.memory();
      std::copy(values.begin(), values.end(), sum.get());
      sums_.add(L + s, std::move(sum));
    }
    return loss;
  }
  template <class Model, class Batch>
  Sum<float> compute_ahead(Model& model, Batch const& batch) { return compute(model, batch); }

  void reduce(Gradients const& gradients, Traffic& traffic) {
    reduce_.all_reduce(*at_, sums_, gradients.values, tag_);
    traffic.bytes += gradients.values.size_bytes();
  }

 private:
  R reduce_;
  E* at_;
  Tag tag_;
  shard_tree::Sums sums_;
};

template <class R>
concept sharded = requires { R::logical_shards; };

template <class R, class E>
struct LaneOf {
  using type = BucketLane<R, E>;
};
template <sharded R, class E>
struct LaneOf<R, E> {
  using type = ShardLane<R, E>;
};

}  // namespace detail

/// One participant of a running strategy: its rank, and the operations in which all replicas take part together.
///
/// order   every replica calls the collective operations in the same order
template <class R, class E>
class Replica {
 public:
  Replica(R reduce, E& at) : reduce_{std::move(reduce)}, at_{&at} {}

  Rank id() const { return at_->rank(); }                                  // in [0, num_replicas())
  int  num_replicas() const { return at_->size(); }

  /// Says which step begins, for what errors and heartbeats tell.
  void begin_step(std::uint64_t step) { chorale::begin_step(*at_, step); }

  /// Forward, loss and backward of this replica's share; nothing is sent.
  ///
  /// batch   x (B, Input), y (B, targets); may be empty
  template <class Model, class Batch>
  ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    auto const loss = lane_of(model.gradients()).compute(model, batch);
    return {loss, model.gradients()};
  }

  /// The same, and each bucket of gradients leaves as soon as it is complete. all_reduce(gradients) must follow.
  template <class Model, class Batch>
  ValueAndGradient value_and_gradient_ahead(Model& model, Batch const& batch) {
    auto const loss = lane_of(model.gradients()).compute_ahead(model, batch);
    return {loss, model.gradients()};
  }

  /// Adds up the gradients of all replicas, and their rows, loss and metrics with them: the same bits on every replica.
  ///
  /// throws  PeerLost when another replica failed
  void all_reduce(Gradients& gradients) { lane_of(gradients).reduce(gradients, traffic_); }

  Traffic traffic() const { return traffic_; }

 private:
  using Lane = typename detail::LaneOf<R, E>::type;
  struct Entry {
    float const* buffer;
    std::unique_ptr<Lane> lane;
  };

  Lane& lane_of(Gradients const& gradients) {
    for (auto& entry : lanes_)
      if (entry.buffer == gradients.values.data()) return *entry.lane;
    auto const first = Tag{static_cast<std::uint32_t>(lanes_.size() + 1) << 16};
    lanes_.push_back({gradients.values.data(), std::make_unique<Lane>(reduce_, *at_, gradients, first)});
    return *lanes_.back().lane;
  }

  R reduce_;
  E* at_;
  std::vector<Entry> lanes_;                                               // one for each model: two in a GAN
  Traffic traffic_;
};

}  // namespace chorale
