// pipeline_twice.cpp   expect: chorale: in this schedule of a pipeline a micro-batch goes through a stage twice
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// Backward as a whole, and by weights again.
constexpr pipelines::Entries weights_again(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}, {3, 0, Work::by_weights, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<weights_again, 1>, 1>::ticks; }
