// top_in_int.cpp   expect: chorale: TopK<PerMille, W> sends values as W: float, bf16 or fp16
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = TopK<10, int>{};
