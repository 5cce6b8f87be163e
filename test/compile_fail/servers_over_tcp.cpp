// servers_over_tcp.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/tcp.hpp>

using namespace chorale;

auto connect(Cluster const& cluster) { return Live{ParameterServerStrategy{cluster}, RingAllReduce{}, TcpTransport{}}; }
