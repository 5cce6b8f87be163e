// row_weight_of_two_numbers.cpp   expect: chorale: the field that weighs rows has one number for each row
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Weight : Field<float, 2> {};
auto const weighted = nn::of<Kind>(loss::SparseCrossEntropy{}).weighted_by(Weight{});
