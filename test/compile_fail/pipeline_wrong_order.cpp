// pipeline_wrong_order.cpp   expect: chorale: in this schedule of a pipeline a stage is in the wrong order
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// Gradients by weights before those by inputs.
constexpr pipelines::Entries weights_first(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::by_weights, 0}, {2, 0, Work::by_inputs, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<weights_first, 1>, 1>::ticks; }
