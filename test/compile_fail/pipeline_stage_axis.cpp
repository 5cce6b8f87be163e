// pipeline_stage_axis.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto strategy() { return MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()}; }
