// SPDX-License-Identifier: Apache-2.0
//
// Stages of a pipeline over transports that reach other processes, ranks as threads.
#include "test/strategy/pipeline.hpp"

#include <chorale/cluster/cluster.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace pipeline_test;

TEST_CASE("over messages stages learn the bits of one device", "[strategy][pipeline][tcp]") {
  auto const one      = on_one(0.05F);
  auto const strategy = [](auto schedule) {
    return MeshStrategy{Mesh<Axis<"stage", 3>>{Cluster::local(3), Cpu::logical(1)}, schedule};
  };
  auto const check = [&](Learned const& many) {
    CHECK((many.values == one.values));
    CHECK(many.loss == one.loss);
    CHECK(apart(many.outputs, one.outputs) < 1e-6);
  };
  check(under(strategy(pipelined<ZeroBubbleH1<8>>()), Reproducible<8>{}, 0.05F, SharedMemoryTransport{}));
  check(under(strategy(pipelined<OneForwardOneBackward<8>>()), Reproducible<8>{}, 0.05F, TcpTransport{}));
}
