// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace chorale {

/// An operation in flight. A default-constructed one is done.
///
/// keeps   destroying it does not cancel the operation: the memory that it uses must live until it is done
template <class P>
concept Pending = std::default_initializable<P> && std::movable<P> && requires(P pending) {
  { pending.done() } -> std::same_as<bool>;  // makes progress where possible; never blocks
  { pending.wait() } -> std::same_as<void>;  // returns when it is done; throws PeerLost
};

}  // namespace chorale
