// SPDX-License-Identifier: Apache-2.0
// Two translation units include everything; a function that is not inline would be defined twice and not link.
#include <chorale/chorale.hpp>

#include <cstdio>

int version_seen_by_two();

int main() {
  auto const same = version_seen_by_two() == CHORALE_VERSION_MINOR;
  std::puts(same ? "PASSED: two translation units that include chorale.hpp link"
                 : "FAILED: two translation units that include chorale.hpp agree on the version");
  return same ? 0 : 1;
}
