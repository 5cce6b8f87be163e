// top_in_bf16.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = TopK<10, chorale::bf16>{};
