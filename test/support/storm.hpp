// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <atomic>
#include <csignal>
#include <ctime>

namespace chorale::test {

/// While it lives, a signal a thousand times a second, whose handler does not restart what it interrupts: system calls
/// end with EINTR.
class Storm {
 public:
  Storm() {
    struct sigaction action = {};
    action.sa_handler       = [](int) { ++seen; };
    auto event              = sigevent{};
    event.sigev_notify      = SIGEV_SIGNAL;
    event.sigev_signo       = SIGUSR1;
    auto const often        = timespec{0, 1'000'000};
    auto const when         = itimerspec{often, often};
    seen                    = 0;
    if (::sigaction(SIGUSR1, &action, &before_) != 0 || ::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0 ||
        ::timer_settime(timer_, 0, &when, nullptr) != 0)
      throw Error{"no timer for a storm of signals"};
  }
  ~Storm() {
    ::timer_delete(timer_);
    ::sigaction(SIGUSR1, &before_, nullptr);
  }
  Storm(Storm const&)            = delete;
  Storm& operator=(Storm const&) = delete;

  int signals() const { return seen; }

 private:
  static inline std::atomic<int> seen = 0;

  struct sigaction before_ = {};
  timer_t timer_           = {};
};

}  // namespace chorale::test
