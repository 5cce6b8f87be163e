// pipeline_no_stage_axis.cpp   expect: chorale: pipelined<Schedule>() computes stages along an Axis named
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto strategy() { return MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()}; }
