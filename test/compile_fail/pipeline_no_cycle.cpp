// pipeline_no_cycle.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// Both stages do micro-batch 1 first.
constexpr pipelines::Entries in_turn(int) {
  return {{0, 0, Work::forward, 1}, {1, 0, Work::backward, 1}, {2, 0, Work::forward, 0}, {3, 0, Work::backward, 0},
          {0, 1, Work::forward, 1}, {1, 1, Work::backward, 1}, {2, 1, Work::forward, 0}, {3, 1, Work::backward, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<in_turn, 2>, 2>::ticks; }
