// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace chorale::test {

/// What must hold for every input. Under libFuzzer an exception that nobody catches is a finding; in a test, a failure.
inline void must(bool holds, char const* what) {
  if (!holds) throw std::logic_error{what};
}

}  // namespace chorale::test
