// unpads_to_fixed.cpp   expect: chorale: unpad<To>(From{}) makes a ragged field of a padded one that the rows have
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Padded : Field<int, 6> {};
struct Words : Field<int, 3> {};

auto rows_of(std::vector<int> const& padded) { return data::from_fields<Padded>(padded).unpad<Words>(Padded{}); }
