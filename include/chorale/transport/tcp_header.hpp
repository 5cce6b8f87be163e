// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace chorale {

namespace wire {
struct Plain;
class Sealed;
}  // namespace wire

/// The place of a transport over TCP: without <chorale/transport/tcp.hpp>, whose specialization it is, one sentence names
/// that header.
///
/// keeps   nothing: it cannot be made
/// throws  nothing
/// source  none
template <class P> struct BasicTcpTransport {
  using lacks_its_header = P;

  BasicTcpTransport() {
    static_assert(sizeof(P*) == 0,
                  "chorale: TcpTransport is in a header of its own. Write #include "
                  "<chorale/processes.hpp>, and add -lcrypto to the command. See docs/35-clusters.md");
  }
};

/// TCP transport without encryption, for trusted networks: its checksums detect errors, not attacks.
using TcpTransport = BasicTcpTransport<wire::Plain>;

/// TCP transport that seals every frame with AES-128-GCM, for other networks: see wire::Sealed. It needs a secret.
using SealedTcpTransport = BasicTcpTransport<wire::Sealed>;

}  // namespace chorale
