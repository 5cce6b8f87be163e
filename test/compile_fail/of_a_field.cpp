// of_a_field.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Kind : Field<int, 1> {};
auto const objective = nn::of<Kind>(loss::SparseCrossEntropy{});
