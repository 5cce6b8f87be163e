// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdio>

#ifndef CHORALE_HAVE_LIBTORCH
TEST_CASE("modules of libtorch train as models", "[libtorch]") {
  std::puts(
      "SKIPPED: modules of libtorch train as models: libtorch was absent when this was built. "
      "Try: apt-get install libtorch-dev, or CHORALE_LIBTORCH=FOLDER");
}
#endif
