// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/transport.hpp>

#include <type_traits>

namespace chorale {

/// Sends x to one rank, which receives as many.
///
/// keeps   x may be changed when the result is done
template <Endpoint E, class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] typename E::pending send(E& at, Rank peer, Span<T> x, Tag tag = {}) {
  return at.send(peer, tag, std::as_bytes(x));
}

/// Receives x from one rank, which sends as many.
///
/// keeps   x is there when the result is done
template <Endpoint E, class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] typename E::pending receive(E& at, Rank peer, Span<T> x, Tag tag = {}) {
  return at.recv(peer, tag, std::as_writable_bytes(x));
}

}  // namespace chorale
