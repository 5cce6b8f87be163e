// mesh_of_one_name.cpp   expect: chorale: this Mesh has two axes of one name. Give each Axis a name of its own
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto mesh() { return Mesh<Axis<"data", 2>, Axis<"data", 2>>{Cpu::logical(4)}; }
