// servers_over_layers.cpp   expect: chorale: over this Transport all ranks fail together
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/layered.hpp>

using namespace chorale;

auto connect(Cluster const& cluster) {
  return Live{ParameterServerStrategy{cluster}, RingAllReduce{}, Layered<LocalTransport, LocalTransport>{}};
}
