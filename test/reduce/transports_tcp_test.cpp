// SPDX-License-Identifier: Apache-2.0
// Every algorithm over TcpTransport: the bits that it has over LocalTransport, and the messages that it plans.
#include "test/reduce/transports.hpp"

#include <chorale/transport/tcp.hpp>

namespace transports_tcp_test {

using namespace chorale;
using namespace chorale::test;

using Algorithms = std::tuple<RingAllReduce, ReduceToOne, TreeAllReduce, DoubleTreeAllReduce, HalvingDoublingAllReduce,
                              RecursiveDoublingAllReduce, PairwiseAllReduce>;

TEMPLATE_LIST_TEST_CASE("an all-reduce over TCP has the bits of one over threads, and sends what it plans",
                        "[reduce][contract][tcp]", Algorithms) {
  check_like_local<TestType, TcpTransport>(GENERATE(1, 2, 3, 4, 5, 7, 8, 16), small_sizes);
}

TEMPLATE_LIST_TEST_CASE("a large all-reduce over TCP has the bits of one over threads", "[reduce][contract][tcp]",
                        Algorithms) {
  check_like_local<TestType, TcpTransport>(4, {large_prime});
}

}  // namespace transports_tcp_test
