// mesh_in_shards_of_one.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto strategy() { return MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::split(2)}, sharded<Zero::one>("data")}; }
