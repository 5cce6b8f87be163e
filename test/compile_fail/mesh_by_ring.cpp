// mesh_by_ring.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto connect() {
  return Live{MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}}.num_replicas();
}
