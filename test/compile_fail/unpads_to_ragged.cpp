// unpads_to_ragged.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Padded : Field<int, 6> {};
struct Words : Field<int, ragged> {};

auto rows_of(std::vector<int> const& padded) { return data::from_fields<Padded>(padded).unpad<Words>(Padded{}); }
