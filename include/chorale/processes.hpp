// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a training program of several processes includes in place of chorale.hpp: Cluster::from_env(), TcpTransport,
/// SharedMemoryTransport and ParameterServerStrategy. It needs Boost's headers, nlohmann-json, and -lcrypto.

#include <chorale/chorale.hpp>

#include <chorale/cluster/from_env.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>
