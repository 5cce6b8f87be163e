// mesh_by_own_thread.cpp   expect: chorale: OwnThread sends buckets while layers of a split network exchange values over the same endpoint. Under MeshStrategy use its Reduce without OwnThread
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto connect() {
  return Live{MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}}, OwnThread<RingAllReduce>{}, LocalTransport{}}
      .num_replicas();
}
