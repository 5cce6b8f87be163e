// field_batches_lack.cpp   expect: chorale: this asks for a field that the batches do not have. Name it in map<...>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, 40> {};
struct Tags : Field<float, 12> {};

int use(Rows<Title> const& batch) { return static_cast<int>(batch[Tags{}].size()); }
