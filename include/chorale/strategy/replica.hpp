// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/strategy/rank_operations.hpp>
#include <chorale/strategy/runtime/gradient_reducer.hpp>
#include <chorale/strategy/runtime/rows_apart.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Throws NumericFault, which names the variable and, if a majority agrees, the replica whose copy differs.
///
/// hashes  (replicas, variables), of all replicas in the order of ranks
[[noreturn]] inline void throw_diverged(Variables const& variables, Span<std::uint64_t const> hashes) {
  auto const n        = variables.size();
  auto const replicas = hashes.size() / n;
  auto const of       = [&](std::size_t replica, std::size_t i) { return hashes[replica * n + i]; };
  auto const likes    = [&](std::size_t replica, std::size_t i) {
    auto count = std::size_t{0};
    for (std::size_t r = 0; r < replicas; ++r) count += of(r, i) == of(replica, i) ? 1 : 0;
    return count;
  };
  auto const what_to_try = "the memory of that host, or a step of one's own that differs between replicas.";
  for (std::size_t i = 0; i < n; ++i) {
    auto least = std::size_t{0};
    for (std::size_t r = 1; r < replicas; ++r)
      if (likes(r, i) < likes(least, i)) least = r;
    if (likes(least, i) == replicas) continue;
    auto const name = std::string{variables[i].name};
    if (2 * likes(least, i) < replicas)
      throw NumericFault{"replicas have drifted apart: " + name + " of replica " + std::to_string(least) +
                             " is not that of " + std::to_string(replicas - likes(least, i)) + " of the " +
                             std::to_string(replicas) + " replicas.",
                         what_to_try};
    throw NumericFault{"replicas have drifted apart: " + name + " is not the same on all " + std::to_string(replicas) +
                           " replicas, and no majority says whose is right.",
                       what_to_try};
  }
  throw NumericFault{"replicas have drifted apart: they differ between their variables.", what_to_try};
}

}  // namespace chorale::detail

namespace chorale {

/// Result of one share of a batch: the loss, a sum over its rows, and gradients, sums over the same rows.
struct ValueAndGradient {
  Sum<float> value;
  Gradients gradients;
};

/// One participant of a running strategy: its rank, and the operations in which all replicas take part.
///
/// order   every replica calls the collective operations in the same order
template <class R, class E> class Replica : public detail::RankOperations<Replica<R, E>, E, Tag{1}> {
  using Operations = detail::RankOperations<Replica, E, Tag{1}>;
  friend Operations;

 public:
  Replica(R reduce, E& at) : Operations{at}, reduce_{std::move(reduce)}, at_{&at} {}

  using Operations::all_reduce, Operations::num_replicas;

  /// Sets the number of the step that begins, which errors and heartbeats report.
  void begin_step(std::uint64_t step) { chorale::begin_step(*at_, step); }

  /// Computes forward, loss and backward of this replica's share; no gradients are sent.
  ///
  /// batch   x (B, Input), y (B, targets); may be empty
  template <class Model, class Batch> ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    variables_      = model.net.variables();
    auto const loss = lane_of(model.gradients()).compute(model, batch, together<Model>());
    return {loss, model.gradients()};
  }

  /// Computes forward, loss and backward of this replica's share, and sends each bucket of gradients as soon as it is
  /// complete. all_reduce(gradients) must follow.
  ///
  /// at_end    UpdatesAtEnd if model.optimizer.apply() of these gradients, unchanged, follows as well: a GPU that is
  ///           the only replica then has it in its queue already
  template <class Model, class Batch, class AtEnd = LooksAtEnd>
  ValueAndGradient value_and_gradient_ahead(Model& model, Batch const& batch, AtEnd at_end = {}) {
    variables_      = model.net.variables();
    auto const loss = lane_of(model.gradients()).compute_ahead(model, batch, at_end, together<Model>());
    return {loss, model.gradients()};
  }

  /// Adds up the gradients of all replicas, and their rows, loss and metrics with them: the same bits on every replica.
  ///
  /// throws  PeerLost when another replica failed; NumericFault when the copies of a variable no longer have the same
  ///         bits, which the sums show every Instance::compare_every steps: it names replica and variable
  void all_reduce(Gradients& gradients) {
    lane_of(gradients).reduce(gradients, traffic_);
    expect_alike(gradients);
  }

  /// Part of the gradients that this replica has not sent yet, under an algorithm that leaves elements out, such as
  /// TopK: saved with the optimizer's slots, and written back before the next step. Empty under all other algorithms.
  Span<float> residual(Gradients const& gradients) { return lane_of(gradients).residual(); }

  /// Replaces variables by their mean over all replicas, weighted by `weight`: the same bits on every replica.
  ///
  /// weight    e.g. the rows that this replica has trained on since the last average; if all are 0, nothing changes
  /// scratch   gradients that are not needed any more
  /// cost      tables whose gradients are rows are averaged whole, some rows at a time; the form below has less to send
  template <std::convertible_to<Variables> V> void average(V const& variables, Gradients& scratch, float weight) {
    auto const total = average_dense(variables, scratch, weight);
    if (total == 0) return;
    for (auto& table : scratch.tables)
      average_table(variables, scratch, table, variables.plan[table.variable()].offset, weight, total);
  }

  /// Replaces variables by their mean as above; of tables, only the rows that any replica has changed since all had the
  /// same.
  ///
  /// changed   the rows that this replica has changed
  /// cost      8 bytes and a vector for each of them, to each other replica
  template <std::convertible_to<Variables> V>
  void average(V const& variables, Gradients& scratch, float weight, RowsApart& changed) {
    auto const total = average_dense(variables, scratch, weight);
    if (total == 0 || scratch.tables.empty()) return;
    changed.take_changes(variables, scratch, weight);
    add_up_tables(scratch);
    for (auto const& table : scratch.tables)
      for (std::size_t i = 0; i < table.size(); ++i) {
        auto* const to = &variables.values[variables.plan[table.variable()].offset + table.rows()[i] * table.width()];
        for (std::size_t c = 0; c < table.width(); ++c) to[c] += table[i][c] / total;
      }
  }

  /// Replaces the slots of an optimizer by their mean over all replicas, each with the same weight.
  void average_slots(Span<float> slots, Gradients& scratch) {
    auto const dense = scratch.body().size();
    auto elements    = std::size_t{0};  // of all tables
    for (auto const& v : scratch.plan)
      if (v.spec.by_rows) elements = v.end() - scratch.values.size();
    auto const n = dense + plan::aligned(elements);
    for (; n != 0 && slots.size() >= n; slots = slots.subspan(n)) {
      auto without      = scratch;
      without.tables    = {};
      auto const total  = average_of(slots.first(dense), without, 1);
      auto const tables = Variables{slots, scratch.plan};
      for (auto& table : scratch.tables)
        if (total != 0) average_table(tables, scratch, table, scratch.plan[table.variable()].slot_offset(), 1, total);
    }
  }

  /// Sets where the logical shards of each replica end, of all L; replica 0 has the first ones. All replicas set the
  /// same ends, between two steps. The bits do not depend on them.
  void deal_shards(std::vector<int> ends) requires detail::DealsShards<R> {
    shards_ = std::move(ends);
    for (auto& entry : lanes_) entry.lane->deal_shards(shards_);
  }

  ReduceStatistics traffic() const { return traffic_; }

  /// Steps, rows, and changed rows of tables, since the variables of replicas that train independently were last
  /// averaged. See LocalSgd.
  struct Apart {
    int steps  = 0;
    float rows = 0;
    RowsApart changed{};
  } apart;

 protected:
  static constexpr auto alone = Tag{1};  // of all but gradients: one at a time
  E& endpoint() { return *at_; }
  R const& reduction() const { return reduce_; }

  /// Returns the first of 65536 tags for one more model: all replicas ask for them in the same order.
  Tag next_tags() { return Tag{(lanes_made_++ % 0xFFFF + 1) << 16}; }

  /// Sets the variables in which tell_divergence() looks for differences.
  void remember(Variables const& variables) { variables_ = variables; }

  /// Refuses copies that have drifted apart, as the sums of all digests show.
  void expect_alike(Gradients const& gradients) {
    if (!ReplicaDigest::all_equal(gradients.trailer().digest())) tell_divergence();
  }

  /// Refuses an operation while gradients are on their way: threads that send them may use the endpoint.
  void expect_idle(char const* what) const {
    for (auto const& entry : lanes_)
      CHORALE_EXPECTS(!entry.lane->under_way(),
                      std::string{"gradients are on their way: all_reduce them before "} + what);
  }

  ReduceStatistics traffic_;

 private:
  template <class V> float average_dense(V const& variables, Gradients const& scratch, float weight) {
    static_assert(!std::same_as<V, JoinedVariables>,
                  "chorale: SyncBatchNorm needs all replicas in every step, but under this Strategy they learn apart. "
                  "Use nn::BatchNorm, or MirroredStrategy or MultiWorkerMirroredStrategy");
    auto without   = scratch;
    without.tables = {};
    return average_of(variables.body(), without, weight);
  }

  /// Returns the sum of all weights; 0 if nothing was changed.
  float average_of(Span<float> values, Gradients& scratch, float weight) {
    static_assert(gives_plain_sums<R>,
                  "chorale: average() needs a Reduce that gives sums as they are, e.g. RingAllReduce");
    if (num_replicas() == 1) return 0;
    auto const sums = scratch.body();
    std::fill(scratch.values.begin(), scratch.values.end(), 0.0F);
    scratch.header().rows() = weight;
    for (std::size_t i = 0; i < values.size(); ++i) sums[i] = weight * values[i];
    all_reduce(scratch);
    auto const total = scratch.rows();
    if (total == 0) return 0;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = sums[i] / total;
    return total;
  }

  /// Averages all rows of a table, or of a slot of it, some at a time.
  ///
  /// first   element of row 0 among the values
  void average_table(Variables const& variables, Gradients const& scratch, RowGradients& table, std::size_t first,
                     float weight, float total) {
    auto const some = std::max<std::size_t>(1, (std::size_t{64} << 10) / table.width());
    auto vector     = std::vector<float>(table.width());
    for (std::size_t row = 0; row < table.table_rows(); row += some) {
      auto const end = std::min(row + some, table.table_rows());
      for (auto& one : scratch.tables) one.clear();
      for (auto r = row; r < end; ++r) {
        auto const* const from = &variables.values[first + r * table.width()];
        for (std::size_t c = 0; c < vector.size(); ++c) vector[c] = weight * from[c];
        table.add(r, vector.data());
      }
      add_up_tables(scratch);
      for (auto r = row; r < end; ++r) {
        auto* const to = &variables.values[first + r * table.width()];
        for (std::size_t c = 0; c < vector.size(); ++c) to[c] = table[r - row][c] / total;
      }
    }
    table.clear();
  }

  void add_up_tables(Gradients const& gradients) {
    table_sums_.reduce(*at_, gradients, alone, traffic_, [&](std::size_t i) { return gradients.tables[i].view(); });
  }

  [[noreturn]] void tell_divergence() {
    auto const n = variables_.size();
    auto mine    = std::vector<std::uint64_t>(n);
    for (std::size_t i = 0; i < n; ++i) mine[i] = hash_of(variables_[i].value);
    auto const counts = std::vector<std::size_t>(static_cast<std::size_t>(num_replicas()), n);
    auto all          = std::vector<std::uint64_t>(n * counts.size());
    this->all_gather(Span<std::uint64_t const>{mine}, Span<std::uint64_t>{all}, Span<std::size_t const>{counts});
    try {
      this->barrier();           // a rank that throws fails all that wait
    } catch (PeerLost const&) {  // it passed the barrier, and has the same
    }
    detail::throw_diverged(variables_, all);
  }

  /// Sums over all replicas, for models with layers that need them. For other models nothing of it is compiled.
  template <class Model> Together together() {
    if constexpr (detail::joins<Model>) {
      using Summing = ScheduleExecution<RecursiveDoublingAllReduce, E, double>;
      if (num_replicas() == 1) return {};
      expect_idle("a step of a model with SyncBatchNorm");
      if (!summing_) summing_ = std::make_shared<Summing>();  // keeps its memory from step to step
      return {[](void* self, Span<double> sums) {
                auto& replica = *static_cast<Replica*>(self);
                auto& summing = *static_cast<Summing*>(replica.summing_.get());
                summing.restart(*replica.at_, sums, Op::sum, alone);
                summing.finish();
              },
              this};
    } else {
      return {};
    }
  }

  using Lane = typename detail::LaneOf<R, E>::type;
  struct Entry {
    float const* buffer;
    std::uint64_t owner;
    std::unique_ptr<Lane> lane;
  };

  Lane& lane_of(Gradients const& gradients) {
    auto const* const buffer = gradients.values.data();
    for (auto& entry : lanes_)
      if (entry.buffer == buffer && entry.owner == gradients.owner) return *entry.lane;
    std::erase_if(lanes_, [&](Entry const& entry) { return entry.buffer == buffer; });  // of a destroyed model
    lanes_.push_back({buffer, gradients.owner, std::make_unique<Lane>(reduce_, *at_, gradients, next_tags())});
    if constexpr (detail::DealsShards<R>)
      if (!shards_.empty()) lanes_.back().lane->deal_shards(shards_);
    return *lanes_.back().lane;
  }

  R reduce_;
  E* at_;
  std::uint32_t lanes_made_ = 0;
  std::vector<Entry> lanes_;  // one for each model: two in a GAN
  std::vector<int> shards_;   // where the shards of each replica end, if uneven
  detail::TableSums<E> table_sums_;
  std::shared_ptr<void> summing_;  // the ScheduleExecution of together()
  Variables variables_;            // of the model that computed last
};

}  // namespace chorale
