// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/missing_members.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <type_traits>
#include <vector>

namespace chorale {

namespace detail {

template <class T> inline constexpr bool optional_calls_fit        = true;  // no transport: another sentence says so
template <Transport T> inline constexpr bool optional_calls_fit<T> = OptionalCallsFit<typename T::endpoint>;

template <class S, class R, class T>
inline constexpr bool fit_together = Strategy<S> && choices_are_constants<S> && Transport<T> && optional_calls_fit<T> &&
                                     ReduceAlgorithm<R, T> && Takes<S, R> && Spares<T, S> && Reaches<T, S>;

/// What the calls of a refused Live return: it converts to anything, so that a program which uses it gets no second error.
struct RefusedValue {
  template <class V> requires(!std::is_same_v<V, RefusedValue>) operator V() const;

  RefusedValue operator[](std::size_t) const;
  RefusedValue* begin() const;
  RefusedValue* end() const;
  double mean() const;
};

}  // namespace detail

/// Live for a strategy whose parts do not fit together: each assertion is a sentence that says why. All others use the
/// Live of live.hpp.
///
/// The parameters are deliberately unconstrained: a static_assert's sentence then comes before the compiler's notes.
///
/// keeps   its functions take anything, so that a program which calls them gets no second error
template <class S, class R, class T> class Live {
  static constexpr bool elsewhere = detail::LacksItsHeader<T>;           // it says so itself
  static_assert(Strategy<S> || sizeof(detail::StrategyMembers<S>) > 0);  // each names the member that is missing
  static_assert(
      !Strategy<S> || detail::choices_are_constants<S>,
      "chorale: a choice of this Strategy is not a static "
      "constexpr bool: reduces_every_step, applies_sums, shares_variables, shards_optimizer, shards_gradients or "
      "shards_variables. See StrategyTraits");
  static_assert(Transport<T> || elsewhere || sizeof(detail::TransportMembers<T>) > 0);
  static_assert(
      !Transport<T> || detail::optional_calls_fit<T>,
      "chorale: an optional member of this Transport's "
      "endpoint has other parameters or another result than the library calls: announce, begin_step, fail, wait_any, "
      "lost or close. See the table at Endpoint in transport/transport.hpp");
  static_assert([] {
    if constexpr (Transport<T> && !ReduceAlgorithm<R, T>) return sizeof(detail::ReduceMembers<R, T>) > 0;
    else return true;
  }());
  static_assert(
      !Strategy<S> || Takes<S, R>,
      "chorale: this Strategy cannot use this Reduce, which rounds, leaves out "
      "or orders what it adds up: LocalSgd and Gossip average variables by it, and under ParameterServerStrategy no "
      "gradient passes through it; or which has no halves, of which ShardedStrategy uses one before the update and one "
      "after it. RingAllReduce goes with all. See docs/30-compose.md");
  static_assert(!Transport<T> || !Strategy<S> || Spares<T, S>,
                "chorale: over this Transport all ranks fail together, "
                "but under ParameterServerStrategy a lost worker is only missed. Use TcpTransport or "
                "SharedMemoryTransport, or LocalTransport for threads. See docs/30-compose.md");
  static_assert(
      !Transport<T> || !Strategy<S> || Reaches<T, S>,
      "chorale: this Transport cannot read the memory "
      "of this Strategy's device. Use one whose reaches(Memory) says yes to it; LocalTransport reaches host memory. "
      "See docs/30-compose.md");

 public:
  Live(S, R, T) {}

  int num_replicas() const;
  int num_ranks() const;
  int num_shares() const;
  Rank share_of(Rank) const;
  bool counts_rows(Rank) const;
  bool is_chief() const;
  bool is_all_local() const;
  bool only_serves() const;
  S const& strategy() const;
  void update(auto&&...) const;
  void finish(auto&&...);
  void set_shares(auto&&...);
  void leave();

  detail::RefusedValue create(auto&&...);
  detail::RefusedValue distribute(auto&&...) const;
  detail::RefusedValue distribute_here(auto&&...) const;
  detail::RefusedValue run(auto&&...);
  detail::RefusedValue reduce(detail::RefusedValue const&);
  detail::RefusedValue gather(detail::RefusedValue const&);
  detail::RefusedValue served();

  template <class V> V reduce(PerReplica<V> const&);
  template <class V> std::vector<V> gather(PerReplica<V> const&);
};

}  // namespace chorale
