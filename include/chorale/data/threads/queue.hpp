// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::data {

/// A container, without locks or bounds, that decides which element of a queue comes next.
template <class P, class T>
concept Picking = requires(P picking, T value) {
  picking.put(std::move(value));
  { picking.take() } -> std::same_as<T>;  // only if size() > 0
  { picking.size() } -> std::same_as<std::size_t>;
};

/// Picking in the order of arrival: first in, first out.
template <class T> class FirstIn {
 public:
  void put(T value) { values_.push_back(std::move(value)); }
  T take() {
    auto value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  std::size_t size() const { return values_.size(); }

 private:
  std::deque<T> values_;
};

/// Picking at random, as a function of the seed and of the puts and takes before.
template <class T> class AnyOf {
 public:
  explicit AnyOf(Seed seed = {}) : random_{seed, std::uint64_t{0x71756575} << 32} {}  // "queu"

  void put(T value) { values_.push_back(std::move(value)); }
  T take() {
    std::swap(values_[random_.below(taken_++, values_.size())], values_.back());
    auto value = std::move(values_.back());
    values_.pop_back();
    return value;
  }
  std::size_t size() const { return values_.size(); }

 private:
  Random random_;
  std::uint64_t taken_ = 0;
  std::vector<T> values_;
};

/// Picking of the least element by Less; of equal elements, the one put first.
template <class T, class Less = std::less<>> class LeastFirst {
 public:
  explicit LeastFirst(Less less = {}) : less_{std::move(less)} {}

  void put(T value) {
    heap_.push_back({std::move(value), count_++});
    std::push_heap(heap_.begin(), heap_.end(), later());
  }
  T take() {
    std::pop_heap(heap_.begin(), heap_.end(), later());
    auto value = std::move(heap_.back().value);
    heap_.pop_back();
    return value;
  }
  std::size_t size() const { return heap_.size(); }

 private:
  struct Entry {
    T value;
    std::uint64_t number;  // keeps equal elements in order
  };
  auto later() const {
    return [this](Entry const& a, Entry const& b) {
      return less_(b.value, a.value) || (!less_(a.value, b.value) && b.number < a.number);
    };
  }

  Less less_;
  std::uint64_t count_ = 0;
  std::vector<Entry> heap_;
};

/// A queue of bounded length between threads.
///
///   auto queue = data::Fifo<Task>{16};
///   queue.push(task);                                     // one thread; waits while the queue holds 16
///   while (auto task = queue.pop()) run(*task);           // other threads; nothing once it is closed and empty
///
/// keeps   at most `capacity` elements; close() keeps them, cancel() drops them
/// order   the order of Picking, among the elements in the queue at the moment of a pop
/// throws  what put and take of Picking throw; other threads that wait go on
/// source  tf.queue.FIFOQueue, RandomShuffleQueue, PriorityQueue: enqueue, dequeue, close(cancel_pending_enqueues)
template <class T, Picking<T> P> class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity, P picking = P{}) : capacity_{capacity}, values_{std::move(picking)} {
    CHORALE_EXPECTS(capacity > 0, "a queue needs room for at least one element");
  }
  BoundedQueue(BoundedQueue const&)            = delete;
  BoundedQueue& operator=(BoundedQueue const&) = delete;

  /// Waits for room. False when the queue is closed or cancelled, or the deadline has passed: value is lost then.
  [[nodiscard]] bool push(T value, Deadline deadline = Deadline::never()) {
    auto lock = std::unique_lock{mutex_};
    wait(lock, room_, deadline, [&] { return closed_ || values_.size() < capacity_; });
    if (closed_ || values_.size() == capacity_) return false;
    or_wake_another([&] { values_.put(std::move(value)); });
    any_.notify_one();
    return true;
  }

  /// Waits for an element. Nothing when the queue is closed and empty, or cancelled, or the deadline has passed.
  [[nodiscard]] std::optional<T> pop(Deadline deadline = Deadline::never()) {
    auto lock = std::unique_lock{mutex_};
    wait(lock, any_, deadline, [&] { return closed_ || values_.size() > 0; });
    if (values_.size() == 0) return {};
    auto value = std::optional<T>{};
    or_wake_another([&] { value.emplace(values_.take()); });
    room_.notify_one();
    return value;
  }

  /// Refuses further pushes, also pushes that wait; pops continue until the queue is empty.
  void close() {
    auto const lock = std::lock_guard{mutex_};
    closed_         = true;
    any_.notify_all(), room_.notify_all();
  }

  /// Refuses further pushes and pops, and drops the elements. Every thread that waits returns.
  void cancel() {
    auto dropped    = std::vector<T>{};  // destroyed when the lock is free again
    auto const lock = std::lock_guard{mutex_};
    closed_         = true;
    any_.notify_all(), room_.notify_all();  // first: the next line may throw
    while (values_.size() > 0) dropped.push_back(values_.take());
  }

  std::size_t size() const {
    auto const lock = std::lock_guard{mutex_};
    return values_.size();
  }
  bool closed() const {
    auto const lock = std::lock_guard{mutex_};
    return closed_;
  }

 private:
  template <class Ready>
  static void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& on, Deadline deadline, Ready ready) {
    if (deadline.at == Deadline::never().at) on.wait(lock, ready);
    else on.wait_until(lock, deadline.at, ready);
  }

  /// Calls change(). If it throws, wakes another thread: the room or element for which this one was woken is left.
  template <class Change> void or_wake_another(Change change) {
    try {
      change();
    } catch (...) {
      any_.notify_one(), room_.notify_one();
      throw;
    }
  }

  std::size_t capacity_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable any_, room_;
  P values_;
  bool closed_ = false;
};

template <class T> using Fifo                                    = BoundedQueue<T, FirstIn<T>>;
/// A queue in a random order, fixed by a seed if threads put elements in the same order: pass AnyOf<T>{seed}.
template <class T> using RandomQueue                             = BoundedQueue<T, AnyOf<T>>;
template <class T, class Less = std::less<>> using PriorityQueue = BoundedQueue<T, LeastFirst<T, Less>>;

}  // namespace chorale::data
