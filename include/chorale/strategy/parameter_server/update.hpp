// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/strategy/parameter_server/rounds.hpp>
#include <chorale/strategy/parameter_server/shard.hpp>
#include <chorale/tensor/cpu/kernels.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// Counts of what one server has received and done.
///
/// keeps   each push that arrived in full is one of applied, late, skipped, refused or duplicates
struct ServerStatistics {
  std::uint64_t applied = 0, late = 0, skipped = 0, refused = 0, duplicates = 0;  // pushes
  std::uint64_t cut_off = 0;               // pushes whose worker was lost meanwhile
  std::uint64_t updates = 0;               // of the variables, by the optimizer
  std::uint64_t pulls = 0, unchanged = 0;  // unchanged: answered without values
  std::uint64_t lost     = 0;              // workers
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::array<std::uint64_t, 17> staleness{};  // pushes, [updates since a pull]; last: more

  std::uint64_t pushes() const { return applied + late + skipped + refused + duplicates; }
};

/// Queue of changes of a shard, for the thread that serves it.
class Closures {
 public:
  using Closure = std::function<void(Span<float> values, Span<float> slots)>;

  /// Enqueues a change; may be called from any thread.
  void add(Closure f) {
    auto const lock = std::scoped_lock{mutex_};
    waiting_.push_back(std::move(f));
    any_ = true;
  }

  /// Makes the changes in the queue; true if there were any.
  template <class Shard> bool run(Shard& shard) {
    if (!any_) return false;
    auto now = std::vector<Closure>{};
    {
      auto const lock = std::scoped_lock{mutex_};
      now.swap(waiting_);
      any_ = false;
    }
    for (auto const& f : now) shard.update(f);
    return true;
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::vector<Closure> waiting_;
};

/// Makes one update of contributions.
///
/// order   dense gradients are added up in pairs, along a binary tree in the order of workers; rows that occur twice, of
///         tables or pushed by themselves, in the order of workers
template <optim::Optimizer O> class Update {
 public:
  Update(Shard<O>& shard, NonFinite on_non_finite) : shard_{&shard}, on_non_finite_{on_non_finite} {}

  /// Fault that must stop all workers: finite gradients whose sum is not finite. Empty if there is none.
  std::string const& fault() const { return fault_; }

  /// Applies contributions as one update, and counts them; `clock` is the clock before it.
  void apply(std::vector<Contribution>& all, std::uint64_t clock, ServerStatistics& ledger) {
    auto& now = shard_->now;
    for (auto const& one : all) now.epoch = std::max(now.epoch, static_cast<int>(one.request.epoch));
    auto const finite = apply_dense(all);
    auto const rows   = finite && apply_rows(all);
    for (auto const& one : all) {
      if (!one.request.brings_values()) continue;  // counted when it arrived
      ++(finite ? ledger.applied : ledger.skipped);
      ++ledger.staleness[std::min<std::uint64_t>(clock - one.request.seen, ledger.staleness.size() - 1)];
    }
    if (updated_ || rows) ++ledger.updates;
    if (finite && rows_of(all) != 0) ++now.step;
  }

 private:
  static float rows_of(std::vector<Contribution> const& all) {
    auto rows = 0.0F;
    for (auto const& one : all) rows += one.request.rows;
    return rows;
  }

  /// Applies dense contributions, with their rows of tables; false if their sum is not finite, and must not be applied.
  bool apply_dense(std::vector<Contribution>& all) {
    updated_  = false;
    auto rows = 0.0F;
    join_tables(all);
    if (all.size() == 1 && all[0].is_dense() && !all[0].placed.empty()) {
      updated_ = all[0].request.rows != 0;
      if (updated_) shard_->apply_flat(all[0].placed, all[0].request.rows);
      return true;
    }
    dense_.clear();
    for (auto& one : all) {
      if (!one.is_dense()) continue;
      rows += one.request.rows;
      dense_.push_back(one.values.floats(shard_->dense()));
    }
    auto const summed = dense_.size();
    for (std::size_t apart = 1; apart < summed; apart *= 2)
      for (std::size_t i = 0; i + apart < summed; i += 2 * apart) add(dense_[i], dense_[i + apart]);
    if (!fault_.empty()) return false;
    if (rows == 0) return true;
    auto const sum = dense_[0];
    if (summed > 1 && on_non_finite_ != NonFinite::allow && !(Kernels<Cpu>::finite(sum) && shard_->sums_finite())) {
      if (on_non_finite_ == NonFinite::stop)
        fault_ = "the gradients of " + std::to_string(summed) + " workers in update " +
                 std::to_string(shard_->now.step) + " of server " + std::to_string(shard_->server()) +
                 " are finite, but their sum is not";
      return false;
    }
    shard_->apply(sum, rows);
    updated_ = true;
    return true;
  }

  /// Adds up the rows of tables of all dense contributions, one worker after another.
  void join_tables(std::vector<Contribution> const& all) {
    auto const tables = shard_->shards().tables();
    tables_.resize(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
      tables_[t].width = tables[t].width;
      tables_[t].rows.clear();
      for (auto const& one : all)
        if (one.is_dense())
          tables_[t].rows.insert(tables_[t].rows.end(), one.tables[t].rows.begin(), one.tables[t].rows.end());
    }
    shard_->add_up(tables_);
  }

  static void add(Span<float> sum, Span<float const> more) {
    float* const to         = sum.data();
    float const* const from = more.data();
    for (std::size_t i = 0; i < sum.size(); ++i) to[i] += from[i];
  }

  /// Applies rows, all rows of one width as one update; true if any were applied.
  bool apply_rows(std::vector<Contribution>& all) {
    auto any = false;
    for (std::size_t first = 0; first < all.size(); ++first) {
      auto const same = [&](Contribution const& one) {
        return one.is_rows() && one.rows.width == all[first].rows.width;
      };
      auto const before = all.begin() + static_cast<std::ptrdiff_t>(first);
      if (!all[first].is_rows() || std::any_of(all.begin(), before, same)) continue;
      auto together = std::vector<Contribution*>{};
      for (auto& one : all)
        if (same(one)) together.push_back(&one);
      auto rows = 0.0F;
      for (auto const* one : together) rows += one->request.rows;
      if (rows == 0) continue;
      if (together.size() == 1) shard_->apply(all[first].rows, rows);
      else apply_joined(together, rows);
      any = true;
    }
    return any;
  }

  void apply_joined(std::vector<Contribution*> const& together, float of_rows) {
    auto joined = RowGradients{{}, together[0]->rows.width};
    for (auto const* one : together)
      joined.rows.insert(joined.rows.end(), one->rows.rows.begin(), one->rows.rows.end());
    shard_->apply(joined, of_rows);
  }

  Shard<O>* shard_;
  NonFinite on_non_finite_;
  std::vector<Span<float>> dense_;  // of the pushes of one update
  std::vector<RowGradients> tables_;
  bool updated_ = false;
  std::string fault_;
};

}  // namespace chorale::parameter_server
