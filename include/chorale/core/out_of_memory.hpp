// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <sys/resource.h>

#include <new>
#include <string>

namespace chorale::detail {

/// Calls f(). Where memory ends, the error says what it was for, and how much this process may have.
///
/// throws  OutOfMemory instead of std::bad_alloc
template <class F> decltype(auto) within_memory(char const* what_for, F&& f) {
  try {
    return f();
  } catch (std::bad_alloc const&) {
    auto limit      = ::rlimit{};
    auto const text = ::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
                          ? std::string{}
                          : ": this process may have " + std::to_string(limit.rlim_cur) + " bytes";
    throw OutOfMemory{"no memory is left " + std::string{what_for} + text + ".",
                      "more memory or a higher limit of it (ulimit -v), or smaller batches."};
  }
}

}  // namespace chorale::detail
