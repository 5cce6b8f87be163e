// pipeline_cycle.cpp   expect: chorale: in this schedule of a pipeline stages wait for one another, for ever
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// Stage 0 does micro-batch 1 first, forward and backward, and stage 1 micro-batch 0.
constexpr pipelines::Entries crossed(int) {
  return {{0, 0, Work::forward, 1}, {1, 0, Work::backward, 1}, {2, 0, Work::forward, 0}, {3, 0, Work::backward, 0},
          {0, 1, Work::forward, 0}, {1, 1, Work::backward, 0}, {2, 1, Work::forward, 1}, {3, 1, Work::backward, 1}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<crossed, 2>, 2>::ticks; }
