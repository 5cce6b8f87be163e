// input_missing.cpp   expect: chorale: a Sequential begins with nn::Input<...>, the shape of one row
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Dense<64>, nn::Dense<10>> {};
