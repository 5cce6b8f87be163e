// pipeline_micro_batch_missing.cpp   expect: chorale: in this schedule of a pipeline a micro-batch is missing
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// A schedule that leaves out the second of two micro-batches.
constexpr pipelines::Entries one_of_two(int) { return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}}; }

int ticks() { return pipelines::Timetable<pipelines::Table<one_of_two, 2>, 1>::ticks; }
