// bucketed_by_fixed.cpp   expect: chorale: bucket_by_sequence_length takes a ragged field of rows that are not in batches yet.
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Words : Field<int, 4> {};

auto buckets(std::vector<int> const& words) {
  return data::from_fields<Words>(words).bucket_by_sequence_length(Words{}, {.boundaries = {9}, .rows = {64, 8}});
}
