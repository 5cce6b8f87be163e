// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/sum.hpp>

#include <cstdint>
#include <type_traits>

namespace chorale {

/// When replicas synchronize their copies: on_write, all write together, and copies are equal; on_read, each writes its
/// own.
enum class Sync { on_write, on_read };

/// How the parts of all replicas become one value.
enum class Aggregation { none, sum, mean, only_first_replica };

/// Access to a variable for reading only.
template <class T> class ReadHandle {
 public:
  explicit ReadHandle(T const& variable) : variable_{&variable} {}
  explicit ReadHandle(T const&&) = delete;  // it would have no owner

  T const& read() const { return *variable_; }

  template <class X> void assign(X const&) const {
    static_assert(sizeof(X) == 0,
                  "chorale: a ReadHandle only reads. To write, take a WriteHandle; a variable that is "
                  "on_write is written by all replicas together: write(mine, all_reduce)");
  }
  template <class X> void add(X const& x) const { assign(x); }

 private:
  T const* variable_;
};

/// Access to a variable for reading and writing. It converts to a ReadHandle, and not back.
template <class T> class WriteHandle {
 public:
  explicit WriteHandle(T& variable) : variable_{&variable} {}

  T const& read() const { return *variable_; }
  void assign(T const& x) const { *variable_ = x; }
  void add(T const& x) const { *variable_ += x; }
  operator ReadHandle<T>() const { return ReadHandle<T>{*variable_}; }

 private:
  T* variable_;
};

/// One replica's part of a number that all replicas share, and the rule that makes one value from the parts.
///
///   auto seen  = SyncedVariable<std::int64_t, Sync::on_read, Aggregation::sum>{replica};
///   seen.local().add(rows);                                               // nothing is sent: each writes its own,
///   auto const all = seen.read(all_reduce);                               // and all replicas read together
///   auto scale = SyncedVariable<float, Sync::on_write, Aggregation::mean>{replica, 1.0F};
///   scale.write({sum_of_mine, rows_of_mine}, all_reduce);                 // all replicas write together,
///   auto const same = scale.local().read();                               // and each reads its own
///
/// all_reduce  a callable that sums a Span<T> over all replicas in place, with the same bits on each; for a mean a
///             Span<std::int64_t> too. write, read and total are collective: all replicas call them, in one order
/// keeps       on_write: copies are bit-equal. on_read: total() and restore() move sums, and means as sums with their
///             count, to any number of replicas without a division: integers and counts stay exact
/// source      tf.VariableSynchronization and tf.VariableAggregation; there, a restored sum is divided by num_replicas
template <class T, Sync sync, Aggregation aggregation> class SyncedVariable {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, "chorale: a SyncedVariable is a number");
  static_assert(sync != Sync::on_read || aggregation != Aggregation::none,
                "chorale: an on_read variable has another value on each replica, and nothing says how they are read as "
                "one. Name Aggregation::sum, mean or only_first_replica");
  static_assert(aggregation != Aggregation::mean || std::is_floating_point_v<T>,
                "chorale: the mean of integers is not an integer. Use Aggregation::sum, or a variable of double");
  static constexpr bool reads = sync == Sync::on_read, averages = aggregation == Aggregation::mean;

 public:
  using part   = std::conditional_t<averages, Sum<T>, T>;  // what a replica contributes
  using stored = std::conditional_t<reads, part, T>;       // what a replica stores

  /// replica   0-based, in the whole job; initial is the value of all replicas together
  explicit SyncedVariable(Rank replica, stored const& initial = {}) : replica_{replica}, stored_{initial} {
    if constexpr (reads) restore(initial);  // so that it counts once
  }

  /// This replica's copy: writable when the variable is on_read, read-only when it is on_write.
  auto local() {
    if constexpr (reads) return WriteHandle<stored>{stored_};
    else return ReadHandle<stored>{stored_};
  }
  ReadHandle<stored> local() const { return ReadHandle<stored>{stored_}; }

  /// Aggregates the parts of all replicas, and stores the result on all of them.
  template <class AllReduce> void write(part const& mine, AllReduce&& all_reduce) {
    static_assert(!reads,
                  "chorale: an on_read variable is written by each replica alone. Write local().assign(value) "
                  "or local().add(value)");
    static_assert(aggregation != Aggregation::none,
                  "chorale: replicas write values to a variable without aggregation, "
                  "and nothing says which one stays. Name an Aggregation, or "
                  "call write_same(value) when all of them write one value");
    stored_ = stored{value_of(summed(mine, all_reduce))};
  }

  /// Stores a value that the caller knows to be the same on all replicas. Nothing is sent.
  void write_same(T value) {
    static_assert(!reads, "chorale: an on_read variable is written by each replica alone. Write local().assign(value)");
    stored_ = stored{value};
  }

  /// The one value of all replicas' parts, which stay as they are.
  template <class AllReduce> T read(AllReduce&& all_reduce) const { return value_of(total(all_reduce)); }

  /// The sum of all replicas' parts, which restore() takes on any number of replicas.
  template <class AllReduce> part total(AllReduce&& all_reduce) const {
    static_assert(reads, "chorale: an on_write variable is the same on all replicas. Write local().read()");
    return summed(part{stored_}, all_reduce);
  }

  /// Starts again from a total: the first replica stores all of it, the others nothing. With only_first_replica, all
  /// replicas store it.
  void restore(part const& total) {
    static_assert(reads, "chorale: an on_write variable is the same on all replicas. Call write_same(value)");
    if constexpr (reads) stored_ = replica_ == 0 || aggregation == Aggregation::only_first_replica ? total : nothing();
  }

 private:
  static part nothing() { return part{static_cast<T>(-T{0})}; }  // x + -0.0 is x, of either sign
  static T value_of(part const& total) {
    if constexpr (averages) return total.mean();
    else return total;
  }

  template <class AllReduce> part summed(part mine, AllReduce& all_reduce) const {
    if (aggregation == Aggregation::only_first_replica && replica_ != 0) mine = nothing();
    if constexpr (averages) {
      all_reduce(Span<T>{&mine.value, 1});
      all_reduce(Span<std::int64_t>{&mine.count, 1});
    } else {
      all_reduce(Span<T>{&mine, 1});
    }
    return mine;
  }

  Rank replica_;
  stored stored_;
};

}  // namespace chorale
