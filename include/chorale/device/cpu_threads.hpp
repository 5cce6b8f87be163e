// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/device/cpu.hpp>

#include <gsl/util>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale {

/// The threads of one Cpu, which run one function at the same time; thread 0 is the caller. Kernels that they call run
/// on one thread each.
///
///   auto threads = Cpu::Threads{device, 4};
///   threads.run([&](int i) { ... threads.barrier(); ... });
///
/// keeps   the threads live as long as the object. A thread that waits spins for at most `spin_time`, then sleeps, so
///         that it does not hold a core that the awaited thread could use
/// cost    a run allocates nothing, and makes no system call while no thread sleeps
class Cpu::Threads {
 public:
  /// throws  BadArgument if n is below 1; Error if the system starts no more threads
  Threads(Cpu const& device, int n) : device_{device}, size_{n} {
    CHORALE_EXPECTS(n >= 1, "a device computes on at least 1 thread, got " + std::to_string(n));
    try {
      for (int i = 1; i < n; ++i) helpers_.emplace_back("cpu " + std::to_string(i), [this, i] { serve(i); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Threads() { end(); }
  /// Lets Cpu::each() of the calling thread run on these threads from now on, while they live: so that no threads of
  /// OpenMP spin on the same cores.
  static void lend(std::shared_ptr<Threads> const& threads) {
    mine().threads = threads;
    mine().run     = [](void* of, int parts, void (*part)(void const*, int, int), void const* loop) {
      return static_cast<Threads*>(of)->run_loop(parts, part, loop);
    };
  }

  Threads(Threads const&)            = delete;
  Threads& operator=(Threads const&) = delete;

  int size() const { return size_; }
  int taking_part() const { return taking_part_; }  // in this run, or in the last one

  /// Calls f(i) for each i below n, each on its thread, and returns when all calls have returned. Waits for a loop of
  /// another thread.
  ///
  /// n       at most size(); if it is 1, no other thread is woken
  /// throws  the exception of the call that failed first; barriers and waits of the other calls then throw, too
  template <class F> void run(int n, F const& f) {
    CHORALE_EXPECTS(n >= 1 && n <= size_,
                    "a run takes 1 to " + std::to_string(size_) + " threads, got " + std::to_string(n));
    while (running_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();  // a loop of another thread
    auto const ended = gsl::finally([this] { running_.clear(std::memory_order_release); });
    run_alone(n, f);
  }

  /// Waits, in a run, until every thread that takes part has called it.
  ///
  /// throws  Error if a call of this run has failed
  void barrier() {
    auto const passed = passed_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == taking_part_) {
      arrived_.store(0, std::memory_order_relaxed);
      passed_.store(passed + 1, std::memory_order_release);
      announce();
    }
    wait([&] { return passed_.load(std::memory_order_acquire) != passed; });
  }

  /// Waits, in a run, until ready() is true. The thread that makes it true calls announce() after that.
  ///
  /// ready   reads with acquire
  /// throws  Error if a call of this run has failed
  template <class Ready> void wait(Ready&& ready) {
    auto const has_failed = [this] { return failed_.load(std::memory_order_acquire); };
    sleep_until(changes_, [&] { return ready() || has_failed(); });
    if (has_failed()) throw Error{"another thread of this device has failed."};
  }

  /// Wakes the threads that wait in this run.
  void announce() {
    changes_.fetch_add(1, std::memory_order_release);
    changes_.notify_all();
  }

 private:
  template <class F> void run_alone(int n, F const& f) {
    call_        = [](void const* of, int i) { (*static_cast<F const*>(of))(i); };
    job_         = &f;
    failed_      = false;
    arrived_     = 0;
    taking_part_ = n;
    if (n > 1) {
      working_.store(size_ - 1, std::memory_order_relaxed);
      round_.fetch_add(1, std::memory_order_release);
      round_.notify_all();
    }
    {
      auto const alone = OneThread{};
      attempt(0);
    }
    sleep_until(working_, [this] { return working_.load(std::memory_order_acquire) == 0; });
    if (failed_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  /// Runs a loop in `of` parts, at most one for each thread; false while they run something.
  bool run_loop(int of, void (*part)(void const* loop, int thread, int of), void const* loop) {
    if (running_.test_and_set(std::memory_order_acquire)) return false;
    auto const ended = gsl::finally([this] { running_.clear(std::memory_order_release); });
    auto const parts = std::min(of, size_);
    run_alone(parts, [&](int i) { part(loop, i, parts); });
    return true;
  }

  void attempt(int i) {
    try {
      call_(job_, i);
    } catch (...) { fail(std::current_exception()); }
  }

  void fail(std::exception_ptr failure) {
    if (failed_.exchange(true)) return;  // a consequence of the first failure
    failure_ = std::move(failure);
    announce();
  }

  void serve(int i) {
    auto const scope = Scope{device_};
    auto const alone = OneThread{};
    for (unsigned seen = 0;; ++seen) {
      sleep_until(round_, [&] { return round_.load(std::memory_order_acquire) != seen; });
      if (ending_) return;
      if (i < taking_part_) attempt(i);
      if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
    }
  }

  void end() {
    ending_ = true;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  Cpu device_;
  int size_, taking_part_ = 0;
  std::atomic_flag running_{};
  void (*call_)(void const*, int) = nullptr;
  void const* job_                = nullptr;
  std::atomic<unsigned> round_{0}, passed_{0}, changes_{0};
  std::atomic<int> working_{0}, arrived_{0};
  std::atomic<bool> failed_{false}, ending_{false};
  std::exception_ptr failure_;
  std::vector<NamedThread> helpers_;  // last: they use all of the above
};

}  // namespace chorale
