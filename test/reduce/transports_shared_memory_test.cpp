// SPDX-License-Identifier: Apache-2.0
// Every algorithm over SharedMemoryTransport: the bits that it has over LocalTransport, and the messages that it plans.
#include "test/reduce/transports.hpp"

#include <chorale/transport/shared_memory.hpp>

using namespace chorale;
using namespace chorale::test;

using Algorithms = std::tuple<RingAllReduce, ReduceToOne, TreeAllReduce, DoubleTreeAllReduce, HalvingDoublingAllReduce,
                              RecursiveDoublingAllReduce, PairwiseAllReduce, DirectAllReduce>;

TEMPLATE_LIST_TEST_CASE("an all-reduce in shared memory has the bits of one over threads, and sends what it plans",
                        "[reduce][contract][shared_memory]", Algorithms) {
  auto const transport = SharedMemoryTransport{.arena = std::size_t{64} << 10};
  check_like_local<TestType>(GENERATE(1, 2, 3, 4, 5, 7, 8, 16), small_sizes, transport);
}

TEMPLATE_LIST_TEST_CASE("a large all-reduce in shared memory has the bits of one over threads",
                        "[reduce][contract][shared_memory]", Algorithms) {
  auto const arena = GENERATE(as<std::size_t>{}, 0, std::size_t{4} << 20);  // bytes; 0: all travels through rings
  if (arena == 0 && std::is_same_v<TestType, DirectAllReduce>) return;      // it has nothing but access in place
  check_like_local<TestType>(4, {large_prime}, SharedMemoryTransport{.arena = arena});
}
