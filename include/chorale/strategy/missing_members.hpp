// SPDX-License-Identifier: Apache-2.0
//
// The sentences for a strategy, a transport or a reduce of a program's own that lacks a member, which each names.
#pragma once

#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace chorale::detail {

/// True if T is the place of a transport whose header is not included, which it says itself: see tcp_header.hpp.
template <class T> concept LacksItsHeader = requires { typename T::lacks_its_header; };

/// Refuses what is not a Strategy.
template <class S> struct StrategyMembers {
  static constexpr bool device    = requires { requires Device<typename S::device>; };
  static constexpr bool placement = requires { requires Placement<typename S::placement>; };
  static constexpr bool replicas  = requires(S const& s) {
    { s.num_replicas() } -> std::same_as<int>;
  };
  static constexpr bool group = requires(S const& s) {
    { s.group() } -> std::same_as<Group>;
  };
  static constexpr bool devices = [] {
    if constexpr (device)
      return requires(S const& s) {
        { s.local_devices() } -> std::same_as<std::vector<typename S::device>>;
      };
    else return true;
  }();
  static constexpr bool update =
      requires(S const& s, archetype::Replica& replica, archetype::Instance& model, Gradients& gradients) {
        { s.update(replica, model, gradients) } -> std::same_as<void>;
      };
  static constexpr bool any = device || placement || replicas || group || update;

  static_assert(any,
                "chorale: the strategy argument is not a Strategy. It needs device, placement, num_replicas(), "
                "group(), local_devices(), update(replica, model, gradients). See docs/30-compose.md");
  static_assert(!any || device,
                "chorale: the strategy argument is not a Strategy: it has no device. Write using "
                "device = Cpu, on which its replicas compute. See docs/60-write-your-own.md");
  static_assert(!device || placement,
                "chorale: the strategy argument is not a Strategy: it has no placement. Write using placement = "
                "placement::Mirrored, if each replica has a copy of the variables. See docs/60-write-your-own.md");
  static_assert(!device || !placement || replicas,
                "chorale: the strategy argument is not a Strategy: it has no num_replicas. Write int num_replicas() "
                "const, of the whole job. See docs/60-write-your-own.md");
  static_assert(!device || !placement || !replicas || group,
                "chorale: the strategy argument is not a Strategy: it has no group. Write Group group() const, the "
                "ranks of the job, as Group::all_local(n). See docs/60-write-your-own.md");
  static_assert(!device || !placement || !replicas || !group || devices,
                "chorale: the strategy argument is not a Strategy: it has no local_devices. Write std::vector<device> "
                "local_devices() const, one for each replica of this process. See docs/60-write-your-own.md");
  static_assert(!device || !placement || !replicas || !group || !devices || update,
                "chorale: the strategy argument is not a Strategy: it has no update. Write void update(auto& replica, "
                "auto& model, Gradients& gradients) const, which ends a step. See docs/60-write-your-own.md");
};

template <class T>
concept NamesEndpoint = requires {
  typename T::endpoint;
  { T::reaches(Memory::cuda) } -> std::same_as<bool>;
};

/// Refuses what is not a Transport.
template <class T> struct TransportMembers {
  static constexpr bool endpoint = requires { typename T::endpoint; };
  static constexpr bool reaches  = requires {
    { T::reaches(Memory::cuda) } -> std::same_as<bool>;
  };
  static constexpr bool any = endpoint || reaches;

  static_assert(any,
                "chorale: the transport argument is not a Transport. It needs reaches(Memory), connect(Group), "
                "and an endpoint with rank(), size(), send(), recv(). See docs/30-compose.md");
  static_assert(!any || endpoint,
                "chorale: the transport argument is not a Transport: it has no endpoint. Write using "
                "endpoint = ..., the connections of one rank. See docs/60-write-your-own.md");
  static_assert(!endpoint || reaches,
                "chorale: the transport argument is not a Transport: it has no reaches. Write "
                "static constexpr bool reaches(Memory memory), true for memory that it can read "
                "and write. See docs/60-write-your-own.md");
};
template <NamesEndpoint T> struct TransportMembers<T> {
  using E                       = typename T::endpoint;
  static constexpr bool pending = requires { requires Pending<typename E::pending>; };
  static constexpr bool rank    = requires(E& at) {
    { at.rank() } -> std::same_as<Rank>;
  };
  static constexpr bool size = requires(E& at) {
    { at.size() } -> std::same_as<int>;
  };
  static constexpr bool send    = requires(E& at, Rank peer, Tag tag, ConstBytes out) { at.send(peer, tag, out); };
  static constexpr bool recv    = requires(E& at, Rank peer, Tag tag, Bytes in) { at.recv(peer, tag, in); };
  static constexpr bool has_all = pending && rank && size && send && recv;

  static_assert(pending,
                "chorale: the transport argument is not a Transport: its endpoint has no pending. Write using "
                "pending = ..., a type with bool done() and void wait(). See docs/60-write-your-own.md");
  static_assert(!pending || rank,
                "chorale: the transport argument is not a Transport: its endpoint has no rank. Write "
                "Rank rank() const, from 0. See docs/60-write-your-own.md");
  static_assert(!pending || !rank || size,
                "chorale: the transport argument is not a Transport: its endpoint has no "
                "size. Write int size() const, the ranks of the group. See "
                "docs/60-write-your-own.md");
  static_assert(!pending || !rank || !size || send,
                "chorale: the transport argument is not a Transport: its endpoint has no send. Write pending send(Rank "
                "peer, Tag tag, ConstBytes out). See docs/60-write-your-own.md");
  static_assert(!pending || !rank || !size || !send || recv,
                "chorale: the transport argument is not a Transport: its endpoint has no recv. Write pending recv(Rank "
                "peer, Tag tag, Bytes in). See docs/60-write-your-own.md");
  static_assert(!has_all || Endpoint<E>,
                "chorale: the transport argument is not a Transport: send and recv of its "
                "endpoint return pending. See docs/60-write-your-own.md");
  static_assert(!Endpoint<E> || Transport<T>,
                "chorale: the transport argument is not a Transport: it has no connect. Write std::vector<endpoint> "
                "connect(Group const& group), one endpoint for each rank of this process. See "
                "docs/60-write-your-own.md");
};

/// Refuses what is not a ReduceAlgorithm over a transport.
template <class R, class T> struct ReduceMembers {
  using E                    = typename T::endpoint;
  static constexpr bool cost = requires {
    { R::cost(8, std::size_t{1024}) } -> std::same_as<Cost>;
  };
  static constexpr bool all_reduce = requires(R const& reduce, E& at, Span<float> x) {
    { reduce.all_reduce(at, x, Op::sum) } -> std::same_as<void>;
  };

  static_assert(cost || all_reduce,
                "chorale: the reduce argument is not a ReduceAlgorithm. It needs "
                "all_reduce(endpoint, x, op) and cost(ranks, bytes). Use RingAllReduce. See "
                "docs/60-write-your-own.md");
  static_assert(cost || !all_reduce,
                "chorale: the reduce argument is not a ReduceAlgorithm: it has no cost. Write static constexpr Cost "
                "cost(int ranks, std::size_t bytes), of the busiest rank. See docs/60-write-your-own.md");
  static_assert(!cost || all_reduce,
                "chorale: this Reduce cannot run over this Transport. DirectAllReduce needs ranks "
                "that read each other's memory, e.g. LocalTransport; RingAllReduce runs over any; "
                "one of your own has all_reduce(endpoint, x, op). See docs/30-compose.md");
};

}  // namespace chorale::detail
