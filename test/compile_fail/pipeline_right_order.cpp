// pipeline_right_order.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// Gradients by inputs, then those by weights.
constexpr pipelines::Entries inputs_first(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::by_inputs, 0}, {2, 0, Work::by_weights, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<inputs_first, 1>, 1>::ticks; }
