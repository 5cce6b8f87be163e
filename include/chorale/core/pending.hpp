// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>

#include <concepts>

namespace chorale {

/// An operation in flight. One that was made by default is done.
///
/// keeps   destroying it does not cancel: what it reads or writes must live until it is done
template <class P>
concept Pending = std::default_initializable<P> && std::movable<P> && requires(P pending) {
  { pending.done() } -> std::same_as<bool>;                         // makes what progress is possible; never blocks
  { pending.wait() } -> std::same_as<void>;                         // returns when it is done; throws PeerLost
};

}  // namespace chorale
