// SPDX-License-Identifier: Apache-2.0
//
// A process that runs out of something.
#pragma once

#include <chorale/core/error.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace chorale::test {

inline void set_limit(int which, rlim_t value) {
  auto limit = rlimit{};
  ::getrlimit(static_cast<__rlimit_resource>(which), &limit);
  limit.rlim_cur = value;
  if (::setrlimit(static_cast<__rlimit_resource>(which), &limit) != 0) throw Error{"a limit cannot be set"};
}

/// Bytes of address space that this process has.
inline rlim_t address_space() {
  auto pages = rlim_t{0};
  std::ifstream{"/proc/self/statm"} >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool opens_pipes = true, has_shadow = true;  // with UBSan, to look at objects
#elif defined(__SANITIZE_THREAD__)
inline constexpr bool opens_pipes = false, has_shadow = true;
#else
inline constexpr bool opens_pipes = false, has_shadow = false;
#endif

inline constexpr auto no_limit = "a sanitizer needs more address space than a limit leaves";

}  // namespace chorale::test
