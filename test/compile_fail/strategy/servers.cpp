// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

// expect: chorale: BackupWorkers<b> needs b of at least 0
#include <chorale/strategy/consistency.hpp>

auto const made = BackupWorkers<-1>{};

// expect: compiles
#include <chorale/strategy/consistency.hpp>

auto const made = BackupWorkers<0>{};

// expect: chorale: over this Transport all ranks fail together
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/layered.hpp>

auto connect(Cluster const& cluster) {
  return Live{ParameterServerStrategy{cluster}, RingAllReduce{}, Layered<LocalTransport, LocalTransport>{}};
}

// expect: compiles
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/tcp.hpp>

auto connect(Cluster const& cluster) { return Live{ParameterServerStrategy{cluster}, RingAllReduce{}, TcpTransport{}}; }

// expect: chorale: BoundedStaleness<k> needs k of at least 0
#include <chorale/strategy/consistency.hpp>

auto const made = BoundedStaleness<-1>{};

// expect: compiles
#include <chorale/strategy/consistency.hpp>

auto const made = BoundedStaleness<0>{};
