// pipeline_all_micro_batches.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

/// The only micro-batch goes through.
constexpr pipelines::Entries one(int) { return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}}; }

int ticks() { return pipelines::Timetable<pipelines::Table<one, 1>, 1>::ticks; }
