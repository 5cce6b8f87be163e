// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/transport.hpp>

#include <type_traits>

namespace chorale {

/// Sends x to rank `peer`, which receives as many elements.
///
/// keeps   x may be changed when the result is done
template <Endpoint E, class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] typename E::pending send(E& at, Rank peer, Span<T> x, Tag tag = {}) {
  return at.send(peer, tag, std::as_bytes(x));
}

/// Receives x from rank `peer`, which sends as many elements.
///
/// keeps   x is complete when the result is done
template <Endpoint E, class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] typename E::pending receive(E& at, Rank peer, Span<T> x, Tag tag = {}) {
  return at.recv(peer, tag, std::as_writable_bytes(x));
}

}  // namespace chorale
