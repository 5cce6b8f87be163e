// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/cores.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace chorale::data {

/// A number that the program gives, or that streams choose while they run: a later pass begins with the last choice,
/// and all copies of a dataset share it.
class Choice {
 public:
  /// begin    the number that streams start with if `given` is auto_tune
  Choice(std::size_t given, std::size_t begin)
      : tuned_{given == auto_tune}, now_{std::make_shared<std::atomic<std::size_t>>(tuned_ ? begin : given)} {}

  bool tuned() const { return tuned_; }
  std::size_t get() const { return *now_; }
  void set(std::size_t n) const { *now_ = n; }

 private:
  bool tuned_;
  std::shared_ptr<std::atomic<std::size_t>> now_;
};

/// The number of threads that a reader needs, by its waits: one more if it waits in most of two reads per thread, one
/// less if it has not waited for long. If a removed thread had to be added again, the next one is removed later.
class ThreadTuner {
 public:
  ThreadTuner(std::size_t begin, std::size_t most) : threads_{std::min(begin, most)}, most_{most} {}

  std::size_t threads() const { return threads_; }

  /// Records a read; `waiting` is true if the reader had to wait for the threads. True when threads() has changed.
  bool found(bool waiting) {
    ++reads_;
    waits_ += waiting ? 1U : 0U;
    quiet_ = waiting ? 0 : quiet_ + 1;
    if (quiet_ >= patience_ * threads_ && threads_ > 1) return change(threads_ - 1);
    if (reads_ < 2 * threads_) return false;
    auto const most_waited = 2 * waits_ > reads_;
    reads_ = 0, waits_ = 0;
    return most_waited && threads_ < most_ && change(threads_ + 1);
  }

 private:
  static constexpr std::size_t least_patience = 16, most_patience = 4'096;

  bool change(std::size_t threads) {
    auto const less = threads < threads_;
    if (!less && was_less_) patience_ = std::min(2 * patience_, most_patience);
    was_less_ = less, threads_ = threads;
    reads_ = 0, waits_ = 0, quiet_ = 0;
    return true;
  }

  std::size_t threads_, most_;
  std::size_t reads_ = 0, waits_ = 0;      // since the last decision
  std::size_t quiet_    = 0;               // reads since the last wait or change
  std::size_t patience_ = least_patience;  // quiet_ for each thread before one thread is removed
  bool was_less_        = false;           // the last change removed a thread
};

/// The depth of prefetch, by what its reader finds: doubled if no element waits although all room was taken before. A
/// source that is merely slow never takes all of it, and more room would not help.
///
/// source  PrefetchAutotuner of tf.data
class DepthTuner {
 public:
  DepthTuner(std::size_t begin, std::size_t most) : depth_{std::min(begin, most)}, most_{most} {}

  std::size_t depth() const { return depth_; }

  /// Records a read that finds `waiting` elements. True when depth() has changed.
  bool found(std::size_t waiting) {
    if (waiting >= depth_) was_full_ = true;
    if (waiting > 0 || !was_full_ || depth_ == most_) return false;
    was_full_ = false, depth_ = std::min(2 * depth_, most_);
    return true;
  }

 private:
  std::size_t depth_, most_;
  bool was_full_ = false;
};

inline std::size_t cores() { return static_cast<std::size_t>(usable_cores()); }

/// The threads of a map that work: all, or the first few of them; and the lock under which they read the source in
/// turns.
class Crew {
 public:
  Crew(Choice choice, std::size_t most)
      : choice_{std::move(choice)}, tuner_{choice_.get(), most}, size_{tuner_.threads()} {}

  std::size_t size() const { return size_; }

  /// Waits until thread number i is among the working threads. False if stop() ends the wait.
  bool turn(std::size_t i) {
    if (i < size_) return true;
    auto lock = std::unique_lock{mutex_};
    called_.wait(lock, [&] { return stopped_ || i < size_; });
    return !stopped_;
  }

  std::unique_lock<std::mutex> lock_source() {
    ++queue_;
    auto lock = std::unique_lock{source_};
    --queue_;
    return lock;
  }

  /// Records a read; only the reader may call it. True when the number of working threads has changed. While threads
  /// wait for the source, a wait of the reader does not count: more threads would not help.
  bool found(bool waiting) {
    if (!choice_.tuned() || !tuner_.found(waiting && queue_ == 0)) return false;
    choice_.set(tuner_.threads());
    auto const lock = std::lock_guard{mutex_};
    size_           = tuner_.threads();
    called_.notify_all();
    return true;
  }

  void stop() {
    auto const lock = std::lock_guard{mutex_};
    stopped_        = true;
    called_.notify_all();
  }

 private:
  Choice choice_;
  ThreadTuner tuner_;                         // used by the reader only
  std::atomic<std::size_t> size_, queue_{0};  // threads that work; of these, that wait for the source
  std::mutex source_;
  std::mutex mutex_;  // guards stopped_, and changes of size_ from being missed
  std::condition_variable called_;
  bool stopped_ = false;
};

}  // namespace chorale::data
