// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace chorale {

/// A thread with a name that debuggers and profilers show; joined on destruction.
class NamedThread {
 public:
  NamedThread() = default;

  /// name    at most 15 characters are shown
  ///
  /// throws  Error when the system starts no more threads
  template <class F>
  NamedThread(std::string name, F&& body) {
    auto run = [name = name.substr(0, 15), body = std::forward<F>(body)]() mutable {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    };
    try {
      thread_ = std::jthread{std::move(run)};
    } catch (std::system_error const& error) {
      throw Error{"the thread '" + name + "' cannot start: " + error.what() +
                  ". Try: more memory, or a higher limit of it or of threads (ulimit -v, ulimit -u)"};
    }
  }

 private:
  std::jthread thread_;
};

/// Hints to the core that this is a spinning wait.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `done()` is true: spins briefly, then yields so that more threads than cores still make progress.
///
/// order   `done` must read with acquire; it may throw to give up
template <class Done>
void spin_until(Done&& done) {
  for (int i = 0; !done(); ++i) {
    if (i < 2'000) relax();
    else std::this_thread::yield();
  }
}

/// How long a waiting thread keeps its core before it sleeps. Longer than a wake-up takes, and far shorter than the
/// slice of time after which the system would take the core away.
inline constexpr auto spin_time = std::chrono::microseconds{100};

/// Waits until `ready()` is true: spins for at most `spin_time`, then sleeps until `changes` is notified.
///
/// order   the thread that makes `ready()` true changes `changes` after that, and then notifies it; `ready` reads with
///         acquire
template <class T, class Ready>
void sleep_until(std::atomic<T> const& changes, Ready&& ready) {
  auto const begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() - begin < spin_time);
  for (;;) {
    auto const seen = changes.load(std::memory_order_acquire);
    if (ready()) return;
    changes.wait(seen, std::memory_order_acquire);
  }
}

namespace detail {

/// Orders all stores before it before all loads after it.
inline void full_fence() { __sync_synchronize(); }

}  // namespace detail

}  // namespace chorale
