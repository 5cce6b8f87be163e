// field_batches_have.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, 40> {};
struct Tags : Field<float, 12> {};

int use(Rows<Title, Tags> const& batch) { return static_cast<int>(batch[Tags{}].size()); }
