// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>

#include <chrono>
#include <thread>

namespace chorale {

/// What a waiting thread does before it looks again: it spins, then yields, then sleeps for 50 us at a time.
///
/// spins   pauses before the first yield; few where more threads than cores wait for one another
/// yields  pauses before the first sleep; few where another thread wakes sleepers
class Backoff {
 public:
  static constexpr int many_yields = 5'000;                           // some milliseconds

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

}  // namespace chorale
