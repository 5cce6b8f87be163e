// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>

namespace chorale {

/// Makes SIGTERM, while the object lives, ask this process to end in good order: fit() saves a checkpoint and throws
/// Preempted, on all ranks after the same step, whichever rank was asked. A second SIGTERM ends the process at once.
///
///   auto const end = EndOnSignal{};
///   trainer.fit(train, {.checkpoints = {.folder = "run/mnist"}, .asked_to_end = end.asked()});
///
/// keeps   one object at a time in a process
/// source  Kubernetes, Slurm and others send SIGTERM some seconds before they take a machine away
class EndOnSignal {
 public:
  EndOnSignal() {
    flag() = false;
    before_ = std::signal(SIGTERM, [](int signal) {
      flag() = true;
      std::signal(signal, SIG_DFL);
    });
  }
  ~EndOnSignal() { std::signal(SIGTERM, before_); }
  EndOnSignal(EndOnSignal const&)            = delete;
  EndOnSignal& operator=(EndOnSignal const&) = delete;

  std::atomic<bool> const* asked() const { return &flag(); }

 private:
  static std::atomic<bool>& flag() {
    static std::atomic<bool> asked = false;                                // a signal handler reaches nothing else
    return asked;
  }

  void (*before_)(int);
};

}  // namespace chorale
