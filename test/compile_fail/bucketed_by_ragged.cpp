// bucketed_by_ragged.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Words : Field<int, ragged> {};

auto buckets(std::vector<std::vector<int>> const& words) {
  return data::from_fields<Words>(words).bucket_by_sequence_length(Words{}, {.boundaries = {9}, .rows = {64, 8}});
}
