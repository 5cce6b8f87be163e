// of_no_field.cpp   expect: chorale: nn::of<F>(...) takes a field that nn::outputs<...> names
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Kind {};
auto const objective = nn::of<Kind>(loss::SparseCrossEntropy{});
