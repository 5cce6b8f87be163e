// SPDX-License-Identifier: Apache-2.0
//
// Tests that take minutes.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace chorale::test {

/// True where slow tests run: `tools/test --slow` sets CHORALE_SLOW. Elsewhere a line says that the test was skipped:
///   if (!slow_or_skip("the name of this test")) return;
inline bool slow_or_skip(std::string const& test) {
  if (auto const* set = std::getenv("CHORALE_SLOW"); set != nullptr && *set != '\0') return true;
  std::printf("SKIPPED: %s: it is slow. Try: tools/test --slow\n", test.c_str());
  return false;
}

}  // namespace chorale::test
