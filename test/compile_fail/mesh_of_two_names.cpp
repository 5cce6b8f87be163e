// mesh_of_two_names.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto mesh() { return Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::logical(4)}; }
