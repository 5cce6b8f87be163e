// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace chorale::data {

/// Wakes one thread that waits for what others write to atomics.
///
/// keeps   a ring after the write is never missed, as long as the write and what `ready` reads are of the default order
/// cost    of a ring that nobody waits for: one load
class Wakeup {
 public:
  /// Waits until ready() is true: a short while on the core, then asleep.
  template <class Ready>
  void wait(Ready ready) {
    for (int i = 0; i < 100; ++i) {
      if (ready()) return;
      relax();
    }
    auto lock = std::unique_lock{mutex_};
    waiting_  = true;                                      // before ready() is asked again: a ring from now on is heard
    rung_.wait(lock, ready);
    waiting_ = false;
  }

  void ring() {
    if (!waiting_) return;
    auto const lock = std::lock_guard{mutex_};             // else it might fall between ready() and the sleep
    rung_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  std::atomic<bool> waiting_{false};
};

}  // namespace chorale::data
