// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/peer_client_target.hpp"
#include "test/fuzz/peer_closure_target.hpp"
#include "test/fuzz/peer_rows_target.hpp"
#include "test/fuzz/peer_server_target.hpp"
#include "test/fuzz/replay.hpp"

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::test;

namespace {

/// The target, which fails if all blocks of devices that it makes are larger: they are not among what is held.
auto in_few_blocks(void (*target)(ConstBytes)) {
  return [target](ConstBytes in) {
    auto const before = memory.block_bytes.load();
    target(in);
    must(memory.block_bytes - before <= most_bytes + in.size(), "more blocks of memory than bytes have arrived");
  };
}

}  // namespace

TEST_CASE("what workers say to a parameter server breaks nothing, nor do messages near it", "[strategy][ps][fuzz]") {
  replay("peer_server", in_few_blocks(fuzz_peer_server));
}

TEST_CASE("what a parameter server says to a worker breaks nothing, nor do messages near it", "[strategy][ps][fuzz]") {
  replay("peer_client", in_few_blocks(fuzz_peer_client));
}

TEST_CASE("what coordinator and workers say to each other breaks nothing, nor do messages near it",
          "[strategy][coordinator][fuzz]") {
  replay("peer_closure", fuzz_peer_closure);
}

TEST_CASE("what ranks say of rows, tables and experts breaks nothing, nor do messages near it", "[nn][tables][fuzz]") {
  replay("peer_rows", fuzz_peer_rows);
}
