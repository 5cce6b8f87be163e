// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace chorale::data {

/// Wakes one thread that waits for values that other threads write to atomics.
///
/// keeps   a ring() after a write is never missed, if the write and the reads of `ready` have the default memory order
/// cost    one load for a ring() while no thread waits
class Wakeup {
 public:
  /// Waits until ready() is true: spins for a short while, then sleeps.
  template <class Ready>
  void wait(Ready ready) {
    for (int i = 0; i < 100; ++i) {
      if (ready()) return;
      relax();
    }
    auto lock = std::unique_lock{mutex_};
    waiting_  = true;                                      // before ready() is called again: from now on ring() wakes
    rung_.wait(lock, ready);
    waiting_ = false;
  }

  void ring() {
    if (!waiting_) return;
    auto const lock = std::lock_guard{mutex_};             // else it might notify between ready() and the sleep
    rung_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  std::atomic<bool> waiting_{false};
};

}  // namespace chorale::data
