// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Makes signals, while the object lives, ask this process to end in good order: fit() saves a checkpoint and throws
/// Preempted, on all ranks after the same step, whichever rank was asked, and once the checkpoint is committed.
///
///   auto const end = EndOnSignal{};                                       // SIGTERM
///   auto const end = EndOnSignal{SIGTERM, SIGINT, SIGUSR1};               // and Ctrl-C, and Slurm's --signal=USR1@60
///   trainer.fit(train, {.checkpoints = {.folder = "run/mnist"}, .asked_to_end = end.asked()});
///
/// keeps   one object at a time in a process. Another of these signals ends the process at once, but only if it comes
///         `apart` after the first or later: a launcher may pass on what its processes were sent, too
/// throws  BadArgument for a signal that no process can catch
/// source  Kubernetes, Slurm and others send SIGTERM some seconds before they take a machine away
class EndOnSignal {
 public:
  /// Time from the first signal until another one ends the process.
  static constexpr auto apart = std::chrono::seconds{2};

  EndOnSignal(std::initializer_list<int> signals = {SIGTERM}) {
    asked_ = false;
    first_ = 0;
    for (int const signal : signals) {
      auto* const before = std::signal(signal, take);
      if (before == SIG_ERR) {
        restore();
        throw BadArgument{"EndOnSignal: signal " + std::to_string(signal) + " cannot be caught.",
                          "SIGTERM, SIGINT, SIGUSR1, SIGUSR2 or SIGHUP."};
      }
      before_.emplace_back(signal, before);
    }
  }
  ~EndOnSignal() { restore(); }
  EndOnSignal(EndOnSignal const&)            = delete;
  EndOnSignal& operator=(EndOnSignal const&) = delete;

  std::atomic<bool> const* asked() const { return &asked_; }

 private:
  using Time = std::chrono::steady_clock::rep;

  static void take(int signal) {
    auto const now = std::chrono::steady_clock::now().time_since_epoch();
    auto first     = Time{0};
    asked_         = true;
    if (first_.compare_exchange_strong(first, now.count())) return;
    if (now - std::chrono::steady_clock::duration{first} < apart) return;
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // ends the process when this returns
  }

  void restore() {
    for (auto at = before_.rbegin(); at != before_.rend(); ++at) std::signal(at->first, at->second);
  }

  static inline std::atomic<bool> asked_ = false;  // a signal handler reaches nothing else
  static inline std::atomic<Time> first_ = 0;      // when the first came

  std::vector<std::pair<int, void (*)(int)>> before_;
};

}  // namespace chorale
