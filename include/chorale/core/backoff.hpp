// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace chorale {

/// Hints to the core that this is a spinning wait.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// What a waiting thread does before it looks again: it spins, then yields, then sleeps for 50 us at a time.
///
/// spins   pauses before the first yield; few where more threads than cores wait for one another
/// yields  pauses before the first sleep; few where another thread wakes sleepers
class Backoff {
 public:
  static constexpr int many_yields = 5'000;  // some milliseconds

  explicit constexpr Backoff(int spins = 2'000, int yields = many_yields) : spins_{spins}, yields_{yields} {}

  void pause() {
    if (turns_ < spins_) relax();
    else if (turns_ < spins_ + yields_) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds{50});
    if (turns_ < spins_ + yields_) ++turns_;
  }

  /// True from the first yield on: there is time to read a clock.
  bool slow() const { return turns_ >= spins_; }

  /// True once it sleeps between looks.
  bool asleep() const { return turns_ >= spins_ + yields_; }

 private:
  int spins_, yields_;
  int turns_ = 0;
};

/// Waits until `done()` is true: spins briefly, then yields so that more threads than cores still make progress.
///
/// order   `done` must read with acquire; it may throw to give up
template <class Done> void spin_until(Done&& done) {
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
template <class T, class Ready> void sleep_until(std::atomic<T> const& changes, Ready&& ready) {
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

}  // namespace chorale
