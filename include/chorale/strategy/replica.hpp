// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/bucket.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

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

/// One participant of a running strategy: its rank, and the operations in which all replicas take part together.
///
/// order   every replica calls the collective operations in the same order
template <class R, class E>
class Replica {
 public:
  Replica(R reduce, E& at) : reduce_{std::move(reduce)}, at_{&at} {}

  Rank id() const { return at_->rank(); }                                  // in [0, num_replicas())
  int  num_replicas() const { return at_->size(); }

  /// Forward, loss and backward of this replica's share; nothing is sent.
  ///
  /// batch   x (B, Input), y (B, targets); may be empty
  template <class Model, class Batch>
  ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    auto const loss = model.value_and_gradient(batch, batch.first_row, [](std::size_t) {});
    return {loss, model.gradients()};
  }

  /// The same, and each bucket of gradients leaves as soon as it is complete. all_reduce(gradients) must follow.
  template <class Model, class Batch>
  ValueAndGradient value_and_gradient_ahead(Model& model, Batch const& batch) {
    if (num_replicas() == 1) return value_and_gradient(model, batch);
    auto const gradients = model.gradients();
    auto& lane           = lane_of(gradients);
    lane.reducer.begin();
    lane.begun      = true;
    auto const loss =
        model.value_and_gradient(batch, batch.first_row, [&](std::size_t end) { lane.reducer.ready(end); });
    return {loss, gradients};
  }

  /// Adds up the gradients of all replicas, and their rows, loss and metrics with them: the same bits on every replica.
  ///
  /// throws  PeerLost when another replica failed
  void all_reduce(Gradients& gradients) {
    if (num_replicas() == 1) return;
    auto& lane = lane_of(gradients);
    if (!std::exchange(lane.begun, false)) lane.reducer.begin();
    lane.reducer.finish();
    traffic_.early_bytes += lane.reducer.overlap().bytes;
    traffic_.bytes += gradients.values.size_bytes();
  }

  /// Gradients that were reduced so far: while backward still computed, and in all.
  struct Traffic {
    std::size_t early_bytes = 0, bytes = 0;
  };
  Traffic traffic() const { return traffic_; }

 private:
  struct Lane {
    Lane(R const& reduce, E& at, Gradients const& gradients, Tag first)
        : buffer{gradients.values.data()}, reducer{reduce, at, gradients.ends, gradients.values, Op::sum, first} {}
    float const* buffer;
    BucketedReducer<R, E> reducer;
    bool begun = false;
  };

  Lane& lane_of(Gradients const& gradients) {
    for (auto& lane : lanes_)
      if (lane->buffer == gradients.values.data()) return *lane;
    auto const first = Tag{static_cast<std::uint32_t>(lanes_.size() + 1) << 16};
    lanes_.push_back(std::make_unique<Lane>(reduce_, *at_, gradients, first));
    return *lanes_.back();
  }

  R reduce_;
  E* at_;
  std::vector<std::unique_ptr<Lane>> lanes_;                               // one for each model: two in a GAN
  Traffic traffic_;
};

}  // namespace chorale
