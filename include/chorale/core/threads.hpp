// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/error.hpp>

#include <pthread.h>

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
  template <class F> NamedThread(std::string name, F&& body) {
    auto run = [name = name.substr(0, 15), body = std::forward<F>(body)]() mutable {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    };
    try {
      thread_ = std::jthread{std::move(run)};
    } catch (std::system_error const& error) {
      throw Error{"the thread '" + name + "' cannot start: " + error.what() + ".",
                  "more memory, or a higher limit of it or of threads (ulimit -v, ulimit -u)."};
    }
  }

 private:
  std::jthread thread_;
};

namespace detail {

/// Orders all stores before it before all loads after it.
inline void full_fence() { __sync_synchronize(); }

}  // namespace detail

}  // namespace chorale
