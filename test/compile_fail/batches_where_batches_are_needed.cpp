// batches_where_batches_are_needed.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

template <class Data> void pass(Data const& data) {
  auto live = Live{MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  for ([[maybe_unused]] auto& batch : live.distribute(data)) {}
}
void use() { pass(data::digits(100, 1).map(data::scale).batch(10)); }
