// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/collectives/sparse_rows.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/reduce/shard_ends.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/strategy/runtime/bucket_ends.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <gsl/util>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Bytes of gradients that were reduced so far: while backward still computed, and in all.
struct ReduceStatistics {
  std::size_t early_bytes = 0, bytes = 0;
};

namespace detail {

/// True if a layer of the model adds up numbers over all replicas in the middle of a step.
template <class Model> inline constexpr bool joins = requires { requires Model::joins; };

/// Computes forward, loss and backward; models without batch normalization need not accept a Together.
template <class Model, class Batch, class Ready>
Sum<float> compute_gradients(Model& model, Batch const& batch, Ready&& ready, Together together) {
  if constexpr (requires { model.value_and_gradient(batch, batch.first_row, ready, together); })
    return model.value_and_gradient(batch, batch.first_row, ready, together);
  else return model.value_and_gradient(batch, batch.first_row, ready);
}

/// The `ready` callback of backward. `follows_queue` is true if the reduction is enqueued on the same device stream as
/// backward, so that the host need not synchronize before each bucket. It is false if a separate thread sends the
/// buckets.
template <bool Follows, class F> struct Leaving : F {
  static constexpr bool follows_queue = Follows;
};
template <class R, class E>
inline constexpr bool follows_queue =
    requires { requires R::template follows_queue<E>; } && !requires { requires R::own_thread; };

template <class R, class E> struct ReducerOf {
  using type = BucketedReducer<R, E>;
};
template <class R, class E> requires requires { requires R::own_thread; } struct ReducerOf<R, E> {
  using type = ThreadedReducer<R, E>;
};

/// True if each replica has the whole gradient of its part of a table already: nothing is added up over replicas.
inline bool is_owned(Gradients const& gradients, RowGradients const& table) {
  return is_split_along_data(gradients.plan[table.variable()].spec);
}

/// Adds up the rows of tables over all replicas, except for tables that replicas own in parts: the same bits on every
/// replica.
///
/// order   rank after rank: where each rank brings whole shards, the bits do not depend on the number of ranks
template <class E> class TableSums {
 public:
  /// rows_of   called with the index of a table: its rows of this replica
  template <class RowsOf>
  void reduce(E& at, Gradients const& gradients, Tag tag, ReduceStatistics& traffic, RowsOf&& rows_of) {
    for (std::size_t i = 0; i < gradients.tables.size(); ++i) {
      auto& table = gradients.tables[i];
      if (is_owned(gradients, table)) continue;
      auto const mine = rows_of(i);
      traffic.bytes += mine.bytes();
      gather_.gather(at, mine.rows, mine.vectors, mine.values,
                     {table.table_rows(), table.width(), std::string_view{gradients.plan[table.variable()].name}}, tag);
      table.clear();
      table.add({gather_.rows(), gather_.vectors(), gather_.values()});
    }
  }

 private:
  RowGather<E> gather_;
};

/// Returns the algorithm with the places of the shards in these gradients, if it needs them. See ReduceScatterOf.
template <class R> R placed_in(R reduce, int ranks, Gradients const& gradients) {
  if constexpr (requires { reduce.place(ShardEnds{}); }) {
    auto where = ShardEnds{gradients.body(), {}};
    for (Rank rank = 0; rank < ranks; ++rank)
      where.ends.push_back(placement::Shard{rank, ranks}.of(where.buffer.size()).end);
    reduce.place(std::move(where));
  }
  return reduce;
}

/// The all-reduce of what a lossy algorithm must not round: an operation that keeps its memory, if there is one.
template <class R, class E> struct ExactOperation {
  struct type {};
};
template <LossyReduce R, class E> requires ResumableReduce<typename R::exact, E> struct ExactOperation<R, E> {
  using type = typename operation_of<typename R::exact, E>::type;
};

/// Reduction of one model's gradients, in buckets that are sent during backward. Under a lossy algorithm header and
/// trailer, which count rows and name faults, are a separate message.
template <class R, class E> class BucketedGradients {
  static constexpr std::size_t skipped = LossyReduce<R> ? plan::header : 0, left = LossyReduce<R> ? plan::trailer : 0;

 public:
  BucketedGradients(R const& reduce, E& at, Gradients const& gradients, Tag first)
      : at_{&at}, tag_{first}, end_{gradients.values.size() - left},
        reducer_{placed_in(reduce, at.size(), gradients),           at,      ends(gradients),
                 gradients.values.subspan(skipped, end_ - skipped), Op::sum, first} {}

  template <class Model, class Batch> Sum<float> compute(Model& model, Batch const& batch, Together together) {
    return compute_gradients(model, batch, LooksAtEnd{}, together);
  }

  /// order   buckets are sent when all sums of the step's layers are complete, so that collective operations have one
  ///         order, however many buckets are in flight and whichever thread sends them
  template <class Model, class Batch, class AtEnd>
  Sum<float> compute_ahead(Model& model, Batch const& batch, AtEnd at_end, Together together) {
    if (at_->size() == 1) return compute_gradients(model, batch, at_end, together);
    CHORALE_EXPECTS(!begun_,
                    "gradients of this model are on their way: all_reduce them before its next "
                    "value_and_gradient_ahead");
    reducer_.begin();
    begun_           = true;
    auto const leave = [this](std::size_t end) {
      if constexpr (joins<Model>)
        if (end < Model::joins_below) return;
      reducer_.ready(std::min(end, end_) - skipped);
    };
    return compute_gradients(model, batch, Leaving<follows_queue<R, E>, decltype(leave)>{leave}, together);
  }

  bool under_way() const { return begun_; }  // buckets may be in flight

  void reduce(Gradients const& gradients, ReduceStatistics& traffic) {
    if (at_->size() == 1) return;
    if (!std::exchange(begun_, false)) reducer_.begin();
    reducer_.finish();
    if constexpr (LossyReduce<R>) reduce_exactly(gradients);
    tables_.reduce(*at_, gradients, tag_, traffic, [&](std::size_t i) { return gradients.tables[i].view(); });
    traffic.early_bytes += reducer_.overlap().bytes;
    traffic.bytes += gradients.values.size_bytes();
  }

  Span<float> residual() { return reducer_.residual(); }

 private:
  std::vector<std::size_t> ends(Gradients const& gradients) const {
    return clipped(bucket_ends<R>(gradients.plan, gradients.ends, gradients.values.size()), skipped, end_);
  }

  void reduce_exactly(Gradients const& gradients) {
    auto const header  = gradients.header().all();
    auto const trailer = gradients.trailer().all();
    auto both          = std::array<float, plan::header + plan::trailer>{};
    std::copy(trailer.begin(), trailer.end(), std::copy(header.begin(), header.end(), both.begin()));
    if constexpr (requires { exact_.finish(); }) {
      exact_.restart(*at_, Span<float>{both}, Op::sum, tag_);
      exact_.finish();
    } else {
      typename R::exact{}.all_reduce(*at_, Span<float>{both}, Op::sum, tag_);
    }
    std::copy_n(both.begin(), plan::header, header.begin());
    std::copy_n(both.begin() + plan::header, plan::trailer, trailer.begin());
  }

  E* at_;
  Tag tag_;
  TableSums<E> tables_;
  std::size_t end_;  // of the gradients that the reducer gets
  bool begun_ = false;
  typename ReducerOf<R, E>::type reducer_;
  typename ExactOperation<R, E>::type exact_;  // of header and trailer, where R is lossy
};

/// Rows of the gradients of what a replica owns, from all logical shards of a batch.
class OwnedRows {
 public:
  void begin(Gradients const& gradients, int replicas) {
    rows_.resize(gradients.tables.size() * static_cast<std::size_t>(replicas));
    for (auto& rows : rows_) rows.clear();
  }
  /// Takes the rows of a pass, in which each replica has had one shard.
  void take(Gradients const& gradients) {
    auto const replicas = rows_.size() / std::max<std::size_t>(1, gradients.tables.size());
    for (std::size_t i = 0; i < gradients.tables.size(); ++i) {
      auto const& table = gradients.tables[i];
      if (!is_owned(gradients, table)) continue;
      table.each_part([&](Rank of, RowsView const& view) {
        rows_[i * replicas + static_cast<std::size_t>(of)].append(view, table.width());
      });
    }
  }
  /// order   rows of the first replica's shards first, as replicas have shards in their order
  void add_up(Gradients const& gradients) {
    auto const replicas = rows_.size() / std::max<std::size_t>(1, gradients.tables.size());
    for (std::size_t i = 0; i < gradients.tables.size(); ++i) {
      auto& table = gradients.tables[i];
      if (!is_owned(gradients, table)) continue;
      table.clear();
      for (std::size_t r = 0; r < replicas; ++r) table.add(rows_[i * replicas + r].view());
    }
  }

 private:
  std::vector<RowList> rows_;  // (tables, replicas)
};

/// Sums of a replica's logical shards of a batch: each is computed by itself, then added up along the tree as far as
/// this replica's shards go.
template <int L> class ShardSums {
 public:
  /// mine      rank of this replica, of `replicas`
  /// learn     called as learn(model, rows of a shard): forward, loss and backward
  /// ends      where the shards of each replica end; empty: all have as many, as nearly as possible
  /// returns   the loss of this replica's shards
  template <class Model, class Batch, class Learn>
  Sum<float> compute(Model& model, Batch const& batch, Rank mine, int replicas, Learn&& learn,
                     Span<int const> ends = {}) {
    auto const values = model.gradients().values;
    auto const shards = shard_tree::range_of(mine, replicas, L, ends);
    auto const whole  = batch.global_rows != 0 ? batch.global_rows : batch.rows;
    CHORALE_EXPECTS(batch.first_row + batch.rows <= whole,
                    "rows " + std::to_string(batch.first_row) + " and " + std::to_string(batch.rows) +
                        " more are not in a global batch of " + std::to_string(whole));
    auto loss = Sum<float>{};
    sums_.resize(values.size());
    auto const tables = model.gradients().tables;
    rows_.resize(tables.size());
    for (auto& rows : rows_) rows.clear();
    owned_.begin(model.gradients(), replicas);
    [[maybe_unused]] auto const apart = in_shards(model);
    auto const end                    = static_cast<int>(shards.end);
    for (auto s = static_cast<int>(shards.begin); s < end + passes_more(model, shards, replicas, ends); ++s) {
      if (s >= end) {  // other replicas have a shard more
        learn(model, batch.rows_in({0, 0}));
        owned_.take(model.gradients());
        continue;
      }
      auto const rows  = share(whole, s, L);
      auto const shard = batch.rows_in({rows.begin - batch.first_row, rows.end - batch.first_row});
      loss += learn(model, shard);
      auto sum = sums_.memory();
      std::copy(values.begin(), values.end(), sum.get());
      sums_.add(L + s, std::move(sum));
      for (std::size_t i = 0; i < tables.size(); ++i)
        if (!is_owned(model.gradients(), tables[i])) rows_[i].append(tables[i]);
      owned_.take(model.gradients());
    }
    return loss;
  }

  /// Puts the sums of what this replica owns into the gradients: shard by shard, whichever replica had it.
  void add_up_owned(Gradients const& gradients) { owned_.add_up(gradients); }

  shard_tree::Sums const& nodes() const { return sums_; }
  /// Rows of the gradient of table i, in the order of shards.
  RowList const& rows(std::size_t i) const { return rows_[i]; }
  /// Appends the rows of the next replica's shards.
  void append_rows(ShardSums const& next, Span<RowGradients const> tables) {
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].append(next.rows_[i].view(), tables[i].width());
  }

 private:
  /// Tells a model whose replicas ask one another in a step that each has a separate shard, while the result lives.
  template <class Model> static auto in_shards(Model& model) {
    if constexpr (requires { model.in_shards; }) {
      model.in_shards = true;
      return gsl::finally([&model] { model.in_shards = false; });
    } else {
      return 0;
    }
  }
  /// Passes that a replica makes without a shard, so that all make as many: the others ask it for what it owns.
  template <class Model> static int passes_more(Model const&, Range shards, int replicas, Span<int const> ends) {
    if constexpr (requires { requires Model::answers; }) {
      auto most = std::size_t{0};
      for (Rank rank = 0; rank < replicas; ++rank)
        most = std::max(most, shard_tree::range_of(rank, replicas, L, ends).size());
      return static_cast<int>(most - shards.size());
    } else {
      return 0;
    }
  }

  shard_tree::Sums sums_;
  std::vector<RowList> rows_;  // for each table
  OwnedRows owned_;
};

/// True if replicas may have different numbers of logical shards under R.
template <class R> concept DealsShards = ShardedReduce<R> && requires(Span<int const> ends) { R::traffic_of(1, ends); };

/// Reduction of one model's gradients under Reproducible.
template <class R, class E> class ShardedGradients {
 public:
  ShardedGradients(R const& reduce, E& at, Gradients const& gradients, Tag first)
      : reduce_{placed_in(reduce, at.size(), gradients)}, at_{&at}, tag_{first}, traffic_{R::traffic_of(at.size())} {
    if constexpr (CutsBuckets<R>) {
      ends_ = bucket_ends<R>(gradients.plan, gradients.ends, gradients.values.size());
      if constexpr (requires { reduce_.bucket_ends = ends_; }) reduce_.bucket_ends = ends_;
      else reduce_.reduce.bucket_ends = ends_;
    }
  }

  template <class Model, class Batch> Sum<float> compute(Model& model, Batch const& batch, Together together) {
    static_assert(!joins<Model>,
                  "chorale: SyncBatchNorm does not go with Reproducible, which computes each logical shard by itself. "
                  "Use nn::BatchNorm, which looks at one shard, or another Reduce");
    return sums_.compute(
        model, batch, at_->rank(), at_->size(),
        [&](Model& to, Batch const& shard) { return compute_gradients(to, shard, LooksAtEnd{}, together); }, shards_);
  }
  template <class Model, class Batch>
  Sum<float> compute_ahead(Model& model, Batch const& batch, LooksAtEnd, Together together) {
    return compute(model, batch, together);
  }

  static bool under_way() { return false; }

  /// Sets where the shards of each replica end: all replicas set the same, between two steps.
  void deal_shards(std::vector<int> ends) requires DealsShards<R> {
    traffic_ = R::traffic_of(at_->size(), ends);
    shards_  = std::move(ends);
  }

  void reduce(Gradients const& gradients, ReduceStatistics& traffic) {
    reduce_.all_reduce(*at_, traffic_, sums_.nodes(), gradients.values, tag_);
    tables_.reduce(*at_, gradients, tag_, traffic, [&](std::size_t i) { return sums_.rows(i).view(); });
    sums_.add_up_owned(gradients);
    traffic.bytes += gradients.values.size_bytes();
  }

  Span<float> residual() { return {}; }

 private:
  R reduce_;
  E* at_;
  Tag tag_;
  std::vector<std::size_t> ends_;  // of the buckets, if R cuts them
  decltype(R::traffic_of(1)) traffic_;
  std::vector<int> shards_;  // ends of each replica's; empty: even
  TableSums<E> tables_;
  ShardSums<R::logical_shards> sums_;
};

template <class R, class E> struct LaneOf {
  using type = BucketedGradients<R, E>;
};
template <ShardedReduce R, class E> struct LaneOf<R, E> {
  using type = ShardedGradients<R, E>;
};

}  // namespace detail

}  // namespace chorale
