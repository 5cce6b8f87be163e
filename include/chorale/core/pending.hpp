// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>

#include <chrono>
#include <concepts>
#include <thread>

namespace chorale {

/// An operation in flight. One that was made by default is done.
///
/// keeps   destroying it does not cancel: what it reads or writes must live until it is done
template <class P>
concept Pending = std::default_initializable<P> && std::movable<P> && requires(P pending) {
  { pending.done() } -> std::same_as<bool>;                         // makes what progress is possible; never blocks
  { pending.wait() } -> std::same_as<void>;                         // returns when it is done; throws PeerLost
};

/// How long a wait has been in vain, and so what to do before looking again: spin, then yield, then sleep.
///
/// spins   turns before the first yield; few where more threads than cores wait for one another
/// yields  turns before the first sleep; few where somebody wakes who sleeps
class Patience {
 public:
  static constexpr int many_yields = 5'000;                           // some milliseconds

  explicit constexpr Patience(int spins = 2'000, int yields = many_yields) : spins_{spins}, yields_{yields} {}

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
