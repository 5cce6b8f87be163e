// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/peer_rows_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  chorale::test::fuzz_peer_rows(std::as_bytes(std::span{data, size}));
  return 0;
}
