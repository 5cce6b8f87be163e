// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/image_jpeg_target.hpp"
#include "test/fuzz/image_png_target.hpp"
#include "test/fuzz/replay.hpp"

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::test;

TEST_CASE("what the PNG fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("image_png", fuzz_image_png);
}

TEST_CASE("what the JPEG fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("image_jpeg", fuzz_image_jpeg);
}
