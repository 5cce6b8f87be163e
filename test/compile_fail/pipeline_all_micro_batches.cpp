// pipeline_all_micro_batches.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;
using pipeline::Work;

/// The only micro-batch goes through.
constexpr pipeline::Entries one(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}};
}

int ticks() { return pipeline::Timetable<pipeline::Table<one, 1>, 1>::ticks; }
