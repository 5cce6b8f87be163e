// mesh_in_shards_of_three.cpp   expect: chorale: MeshStrategy shards the optimizer's state alone. Write sharded<Zero::one>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto strategy() { return MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::split(2)}, sharded<Zero::three>("data")}; }
