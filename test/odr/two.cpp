// SPDX-License-Identifier: Apache-2.0
#include "test/odr/backwards.hpp"

int version_seen_by_two();
int version_seen_by_two() { return CHORALE_VERSION_MINOR; }
