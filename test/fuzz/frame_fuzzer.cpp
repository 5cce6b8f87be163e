// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/frame_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  chorale::test::fuzz_frame(std::as_bytes(std::span{data, size}));
  return 0;
}
