// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/transport.hpp>

namespace chorale {

/// Says that this rank calls no more operations, and returns when all ranks have said so. To be called by a program
/// whose last operation only sends on some ranks, as a broadcast does on its root: such a rank has returned before
/// another one can have compared it.
///
/// keeps   the endpoint is used no more, but to destroy it. Without it ranks end one by one, and of two that were in
///         different operations only one that still waits is told. Does nothing where the endpoint has no close(), or
///         with FailureScope::peer
/// throws  Disagreement on all ranks when two have not called the same operations; PeerLost
template <Endpoint E>
void close(E& at) {
  if constexpr (requires { at.close(); }) at.close();
}

}  // namespace chorale
