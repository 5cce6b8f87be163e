// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/strategy/mesh/replica.hpp>
#include <chorale/strategy/pipeline/stage_messages.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// Gradients of micro-batches that are logical shards: they are added up along the tree as far as this rank has them.
class ShardsOfMicroBatches final : public pipelines::MicroBatchSums {
 public:
  /// shards    of all ranks; first: of this one
  void begin(Gradients const& gradients, int shards, int first, int micro_batches) {
    gradients_ = gradients;
    shards_    = shards;
    first_     = first;
    sums_.resize(gradients.values.size());
    leaves_.resize(static_cast<std::size_t>(micro_batches));
    for (auto& leaf : leaves_) leaf.reset();
    is_first_ = true;
  }
  Span<float> of(int k) override {
    auto& leaf = leaves_[static_cast<std::size_t>(k)];
    if (leaf == nullptr) {
      leaf = sums_.memory();
      std::fill_n(leaf.get(), sums_.size(), 0.0F);
      if (std::exchange(is_first_, false))  // what this rank reports, once
        std::ranges::copy(gradients_.trailer().all(), StepTrailer{Span<float>{leaf.get(), sums_.size()}}.all().begin());
    }
    return {leaf.get(), sums_.size()};
  }
  void complete(int k) override { sums_.add(shards_ + first_ + k, std::move(leaves_[static_cast<std::size_t>(k)])); }

  shard_tree::Sums const& nodes() const { return sums_; }

 private:
  Gradients gradients_;
  int shards_ = 1, first_ = 0;
  bool is_first_ = true;
  shard_tree::Sums sums_;
  std::vector<std::unique_ptr<float[]>> leaves_;  // of micro-batches; null: not begun, added
};

template <class R> struct TrafficOf {
  struct type {};
  static type of(int) { return {}; }
};
template <ShardedReduce R> struct TrafficOf<R> {
  using type = decltype(R::traffic_of(1));
  static type of(int ranks) { return R::traffic_of(ranks); }
};

}  // namespace detail

/// Replica of a MeshStrategy with stages: it computes one stage, exchanges values and their gradients with the others
/// in the middle of a step, and adds up gradients with the replicas that have the same stage.
///
/// M         the Mesh, with an axis "stage"
/// S         the schedule
template <class M, class R, class E, class S> class PipelineReplica : public MeshReplica<M, R, E> {
  using Base = MeshReplica<M, R, E>;

 public:
  PipelineReplica(R reduce, E& at)
      : Base{reduce, at}, reduce_{std::move(reduce)}, data_{at, M::along(M::data, at.rank())},
        stages_{std::make_unique<SubEndpoint<E>>(at, M::along("stage", at.rank()))},
        messages_{std::make_unique<detail::StageMessages<SubEndpoint<E>>>(*stages_, first_message, at.rank())},
        traffic_{detail::TrafficOf<R>::of(data_.size())} {}

  /// The messages between the stages of this replica's data. Copies have views of them.
  pipelines::Messages& messages() { return *messages_; }

  /// Computes this stage for all micro-batches of its share; no gradients are added up over replicas. The loss that it
  /// returns is counted over rows on the stage that has it: on others it is a sum of none.
  template <class Model, class Batch> ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    this->remember(model.net.variables());
    if constexpr (ShardedReduce<R>) {
      constexpr int L   = R::logical_shards;
      auto const shards = share(static_cast<std::size_t>(L), data_.rank(), data_.size());
      auto const whole  = batch.global_rows != 0 ? batch.global_rows : batch.rows;
      constexpr auto m  = static_cast<std::size_t>(S::micro_batches);
      CHORALE_EXPECTS(shards.size() == m, "micro-batches are the logical shards of Reproducible<" + std::to_string(L) +
                                              ">, of which each of " + std::to_string(data_.size()) + " shares has " +
                                              std::to_string(shards.size()) +
                                              ", but the schedule of the pipeline has " + std::to_string(m) +
                                              " micro-batches");
      rows_.clear();
      for (auto s = shards.begin; s < shards.end; ++s) {
        auto const one = share(whole, static_cast<int>(s), L);
        rows_.push_back({one.begin - batch.first_row, one.end - batch.first_row});
      }
      sums_.begin(model.gradients(), L, static_cast<int>(shards.begin), S::micro_batches);
      model.learner().add_to(&sums_, rows_);
      auto const loss = model.value_and_gradient(batch, batch.first_row, LooksAtEnd{}, Together{});
      for (std::size_t k = 0; k < rows_.size(); ++k)
        if (rows_[k].size() == 0) sums_.of(static_cast<int>(k)), sums_.complete(static_cast<int>(k));
      return {counted(loss), model.gradients()};
    } else {
      auto const loss = model.value_and_gradient(batch, batch.first_row, LooksAtEnd{}, Together{});
      return {counted(loss), model.gradients()};
    }
  }
  template <class Model, class Batch, class AtEnd = LooksAtEnd>
  ValueAndGradient value_and_gradient_ahead(Model& model, Batch const& batch, AtEnd = {}) {
    return value_and_gradient(model, batch);
  }

  using Base::all_reduce;  // of tensors
  /// Adds up the gradients of this stage over replicas with other rows.
  ///
  /// throws  as Replica::all_reduce()
  void all_reduce(Gradients& gradients) {
    if constexpr (ShardedReduce<R>) {
      reduce_.all_reduce(data_, traffic_, sums_.nodes(), gradients.values, of_shards);
      this->expect_alike(gradients);
      gradients.trailer().summed() = 0;  // no rank has checked the gradients of micro-batches
      this->tell_alike(gradients);
    } else {
      Base::all_reduce(gradients);
    }
  }

  /// Tells all stages the loss and the metrics, which one of them has, and gives stages that share a variable its
  /// gradient.
  ///
  /// throws    NumericFault when a stage has reported a gradient that is not finite: the same on all stages, though
  ///           each knows its own variables' names alone
  /// returns   the squared norm of all gradients, if the optimizer needs it: the bits of one device; else 0
  template <class Model> double squared_norm(Model& model, Gradients& gradients) {
    auto& learner    = model.learner();
    auto const clips = model.optimizer.clips();
    learner.share_ties(gradients);
    auto const header = gradients.header().all();
    auto const rows   = gradients.rows();
    numbers_.assign(header.size() + (clips ? learner.norm_size() : 0), 0.0);
    std::ranges::copy(header, numbers_.begin());
    if (clips)
      learner.write_squares(gradients, Span<double>{numbers_}.subspan(header.size()),
                            [&](std::size_t i) { return model.optimizer.is_in_norm(i); });
    summing_.restart(*stages_, Span<double>{numbers_}, Op::sum, of_stages);
    summing_.finish();
    for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<float>(numbers_[i]);
    gradients.header().rows() = rows;  // which each stage has counted
    refuse_faults(model, gradients);
    return clips ? learner.norm_of(Span<double>{numbers_}.subspan(header.size())) : 0.0;
  }

  /// Gives up the memory into which copies have views; keep_axes() takes it over from a disconnected replica.
  auto release_axes() {
    messages_->forget();
    return std::pair{Base::release_axes(), std::move(messages_)};
  }
  template <class Kept> void keep_axes(Kept kept) {
    Base::keep_axes(std::move(kept.first));
    messages_ = std::move(kept.second);
    messages_->move_to(*stages_);
  }

 private:
  Sum<float> counted(Sum<float> const& loss) const {
    return pipelines::has_outputs<S>(stages_->rank(), stages_->size()) ? loss : Sum<float>{};
  }

  template <class Model> static void refuse_faults(Model& model, Gradients const& gradients) {
    auto const trailer = gradients.trailer();
    if (trailer.faults() != 1) return;
    auto const rank  = std::min(static_cast<Rank>(index_below(trailer.rank(), M::size)), M::size - 1);
    auto const local = index_below(std::exchange(trailer.variable(), 0.0F), 1 << 24);
    if (model.optimizer.on_non_finite != NonFinite::stop || !std::isfinite(gradients.loss())) return;
    throw NumericFault{"the gradient of " + model.learner().name_on(M::coordinate(rank, "stage"), local) + " of step " +
                           std::to_string(model.optimizer.now.step) + " is not finite on replica " +
                           std::to_string(rank) + "; no variable was changed.",
                       "a lower learning rate, global_clipnorm, a look at the inputs for NaN, or "
                       "FitOptions::on_non_finite."};
  }

  static constexpr auto of_shards = Tag{12}, of_stages = Tag{13}, first_message = Tag{0x8000'0000};

  R reduce_;
  SubEndpoint<E> data_;
  std::unique_ptr<SubEndpoint<E>> stages_;
  std::unique_ptr<detail::StageMessages<SubEndpoint<E>>> messages_;
  [[no_unique_address]] typename detail::TrafficOf<R>::type traffic_;
  detail::ShardsOfMicroBatches sums_;
  ScheduleExecution<RecursiveDoublingAllReduce, SubEndpoint<E>, double> summing_;
  std::vector<double> numbers_;
  std::vector<Range> rows_;  // of each micro-batch in the share
};

}  // namespace chorale
