// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace chorale {

/// Whether the word of a futex lies in memory that other processes map. Within one process the kernel is faster.
enum class FutexScope { process, shared };

/// Sleeps while `word` is `value`, until it is woken or the time is over. May also return early.
///
/// source  futex(2)
template <FutexScope Scope>
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds longest) {
  auto const ns   = std::max<std::chrono::nanoseconds::rep>(longest.count(), 1);
  auto const time = timespec{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, Scope == FutexScope::process ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT, value, &time, nullptr, 0);
}

/// Wakes every thread that sleeps in futex_wait() on this word. To be called after the word was changed.
template <FutexScope Scope> void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, Scope == FutexScope::process ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

}  // namespace chorale
