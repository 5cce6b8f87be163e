// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/runtime/replica_threads.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace chorale::detail {

struct NoHost {};

template <class S, class R, class E>
struct ReplicaOf {
  using type = std::remove_pointer_t<decltype(StrategyTraits<S>::template replica_of<R, E>())>;
};

template <class S, class E>
struct HostOf {
  using type = NoHost;
};
template <HasServers S, class E>
struct HostOf<S, E> {
  using type = typename S::template host_type<E>;
};

template <class D, class E>
struct TeamOf {
  using type = ReplicaThreads<D>;
};
template <class D, RunsItsRanks E>
struct TeamOf<D, E> {
  using type = InterleavedReplicas<D>;
};

/// Enlarges the stacks of virtual ranks, whose default suffices for an all-reduce, but not for a step of a network.
template <class T>
void make_room_for_steps(T& transport) {
  if constexpr (requires { transport.stack_bytes; })
    transport.stack_bytes = std::max(transport.stack_bytes, std::size_t{1} << 20);
  if constexpr (requires { transport.transport; }) make_room_for_steps(transport.transport);
}

template <class S, class R, class T>
inline constexpr bool fit_together =
    Strategy<S> && Transport<T> && ReduceAlgorithm<R, T> && Takes<S, R> && Spares<T, S> && Reaches<T, S>;

}  // namespace chorale::detail
