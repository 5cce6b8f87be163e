// norm_of_a_part.cpp   expect: chorale: this value is Partial: each replica has a part of it, and the norm of a part is not that of the whole. Reduce it first: all_reduce makes it Mirrored, reduce_scatter makes it Sharded
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

double norm(Span<float const> gradients) {
  return squared_norm(placement::Placed<placement::Partial<Op::sum>>{gradients});
}
