// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/transport.hpp>

namespace chorale {

/// Reports that this rank calls no more operations, and returns when all ranks have reported it. To be called by a
/// program whose last operation only sends on some ranks, as a broadcast does on its root: such a rank has returned
/// before another rank can have compared the operation.
///
/// keeps   the endpoint may then only be destroyed. Without close(), ranks end one by one, and of two that were in
///         different operations only a rank that still waits throws. Does nothing if the endpoint has no close(), or
///         with FailureScope::peer
/// throws  Disagreement on all ranks when two have not called the same operations; PeerLost
template <Endpoint E>
void close(E& at) {
  if constexpr (requires { at.close(); }) at.close();
}

}  // namespace chorale
