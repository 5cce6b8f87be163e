// norm_of_the_whole.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

double norm(Span<float const> gradients) { return squared_norm(placement::Placed<placement::Mirrored>{gradients}); }
