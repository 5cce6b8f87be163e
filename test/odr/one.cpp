// SPDX-License-Identifier: Apache-2.0
// Two translation units include all headers, in two orders; a function that is not inline would be defined twice and not link.
#include "test/odr/forwards.hpp"

#include <cstdio>

int version_seen_by_two();

int main() {
  auto const same = version_seen_by_two() == CHORALE_VERSION_MINOR;
  std::puts(same ? "PASSED: two translation units that include all headers, in two orders, link"
                 : "FAILED: two translation units that include all headers agree on the version");
  return same ? 0 : 1;
}
