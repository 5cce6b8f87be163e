// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/device/device.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <string_view>
#include <type_traits>
#include <vector>

namespace chorale {

template <class R, class E> class Replica;

/// Everything that a strategy may choose, beyond what every Strategy must have. The library asks this class and nothing
/// else; a strategy chooses by members of the names below, or by a specialization of this class.
///
///   | choice                | member of S                                  | without it                              |
///   | --------------------- | -------------------------------------------- | --------------------------------------- |
///   | reduces_every_step    | static constexpr bool reduces_every_step     | replicas learn apart for some steps     |
///   | applies_sums          | static constexpr bool applies_sums           | update() does more than sum and apply   |
///   | shares_variables      | static constexpr bool shares_variables       | each replica has its copy of the model  |
///   | shards_optimizer      | static constexpr bool shards_optimizer       | each copy has all of the slots          |
///   | shards_gradients      | static constexpr bool shards_gradients       | each copy has all gradients             |
///   | shards_variables      | static constexpr bool shards_variables       | each copy has all variables             |
///   | has_servers           | using consistency                            | every rank computes                     |
///   | deals_shares          | num_shares(), share_of(rank)                 | each replica has a separate share       |
///   | shard_of(s, rank)     | shard_of(rank)                               | as many as shares; of stages: as ranks  |
///   | has_stages            | using schedule_type, instance_of<M>, cuts<M>,| each copy computes the whole model      |
///   |                       | refuse<M>(), and                             |                                         |
///   |                       | instantiate(model, device, seed, rank)       |                                         |
///   | axis_size(name)       | using mesh_type                              | no layer may be split over ranks        |
///   | takes<R>              | template <class R> static constexpr bool takes | every Reduce fits                     |
///   | finishes<L, Model>    | finish(replica, model)                       | nothing is called when an epoch ends    |
///   | replica_type<R, E>    | template <class R, class E> using replica_type | Replica<R, E>                         |
///
/// reduces_every_step   every step all-reduces its gradients, so buckets of them are sent while backward still runs
/// applies_sums         update() is all_reduce() of the gradients, then apply() of the model's optimizer: a GPU that is
///                      alone may then enqueue the update after backward
/// shares_variables     all replicas read the variables of the first one in place
/// shards_optimizer     each replica has the optimizer's state of its placement::Shard, and updates it by apply_shard()
/// shards_gradients     and the gradients of that shard: units of a network take turns in the memory of a copy
/// shards_variables     and the variables of it alone
/// has_servers          some ranks store variables and do not compute; they follow the replicas in the group
/// deals_shares         several replicas have the same share of a batch: the rows of share_of(rank), of num_shares()
/// shard_of             where replicas keep shards: the placement::Shard of a rank. Several may have the same
/// has_stages           a copy has one stage of a pipeline: it is of type instance_of<M>. Where deals_shares,
///                      counts_rows(rank) then says which of the replicas with one share has the losses, metrics and
///                      outputs of its rows
/// axis_size            ranks along an axis of the strategy's Mesh, over which layers may be split
/// takes                true if the strategy works with what this Reduce gives
/// finishes             the strategy brings replicas together at the end of an epoch
template <class S> struct StrategyTraits {
  static constexpr bool reduces_every_step = requires { requires S::reduces_every_step; };
  static constexpr bool applies_sums       = reduces_every_step && requires { requires S::applies_sums; };
  static constexpr bool shares_variables   = requires { requires S::shares_variables; };
  static constexpr bool shards_optimizer   = requires { requires S::shards_optimizer; };
  static constexpr bool shards_gradients   = requires { requires S::shards_gradients; };
  static constexpr bool shards_variables   = requires { requires S::shards_variables; };
  static constexpr bool has_servers        = requires { typename S::consistency; };
  static constexpr bool deals_shares       = requires(S const& strategy) { strategy.num_shares(); };
  static constexpr bool has_mesh           = requires { typename S::mesh_type; };
  static constexpr bool has_stages         = requires { typename S::schedule_type; };

  static constexpr int axis_size([[maybe_unused]] std::string_view name) {
    if constexpr (has_mesh) return S::mesh_type::size_of(name);
    else return 1;
  }
  /// The place of a rank along an axis of the Mesh.
  static constexpr Rank coordinate([[maybe_unused]] Rank rank, [[maybe_unused]] std::string_view name) {
    if constexpr (has_mesh) return S::mesh_type::coordinate(rank, name);
    else return 0;
  }

  template <class R>
  static constexpr bool takes = !requires { S::template takes<R>; } || requires { requires S::template takes<R>; };

  /// True unless copies are stages, and model M cannot be cut in them.
  template <class M>
  static constexpr bool cuts = !requires { S::template cuts<M>; } || requires { requires S::template cuts<M>; };

  template <class L, class Model>
  static constexpr bool finishes =
      requires(S const& strategy, typename L::replica& replica, Model& model) { strategy.finish(replica, model); };

  /// The replicas of the strategy, for a Reduce and the endpoints of a transport.
  template <class R, class E> static auto replica_of() {
    if constexpr (requires { typename S::template replica_type<R, E>; })
      return static_cast<typename S::template replica_type<R, E>*>(nullptr);
    else return static_cast<Replica<R, E>*>(nullptr);
  }
};

/// Strategies whose every step all-reduces its gradients.
template <class S> concept ReducesEveryStep = StrategyTraits<S>::reduces_every_step;

/// Strategies whose update() is all_reduce() of the gradients, then apply() of the model's optimizer.
template <class S> concept AppliesSums = StrategyTraits<S>::applies_sums;

/// Strategies with ranks that store variables and do not compute.
template <class S> concept HasServers = StrategyTraits<S>::has_servers;

/// True if all replicas of S read the variables of the first one in place.
template <class S> inline constexpr bool shares_variables = StrategyTraits<S>::shares_variables;

/// True if each replica of S has the optimizer's state of one shard of all variables.
template <class S> inline constexpr bool shards_optimizer = StrategyTraits<S>::shards_optimizer;

/// True if each replica of S keeps the gradients of one shard of all variables; and the variables of it alone.
template <class S> inline constexpr bool shards_gradients = StrategyTraits<S>::shards_gradients;
template <class S> inline constexpr bool shards_variables = StrategyTraits<S>::shards_variables;

/// Ranks of a job that compute: as many as replicas, unless a device has several, as the cores of a TPU are.
template <class S> int num_ranks(S const& strategy) {
  if constexpr (HasServers<S>) return strategy.num_replicas();  // the group has the servers, too
  else return strategy.group().size();
}

/// The part of a rank where a strategy keeps shards: one of as many as there are shares of a batch, unless the strategy
/// says otherwise.
template <class S> placement::Shard shard_of(S const& strategy, Rank rank) {
  if constexpr (requires { strategy.shard_of(rank); }) return strategy.shard_of(rank);
  else if constexpr (StrategyTraits<S>::deals_shares && !StrategyTraits<S>::has_stages)
    return {strategy.share_of(rank), strategy.num_shares()};
  else return {rank, num_ranks(strategy)};
}

namespace detail {

/// True if the mesh of S has all axes that a model's layers are split over, in these sizes.
template <class S, class Instance> constexpr bool mesh_fits() {
  if constexpr (requires { Instance::axes_asked(); })
    for (auto const& axis : Instance::axes_asked())
      if (StrategyTraits<S>::axis_size(axis.name) != axis.size) return false;
  return true;
}

/// True if no layer of a model that needs the same rows on all its ranks is split along the axis along which batches
/// are dealt out.
template <class S, class Instance> constexpr bool leaves_data_axis() {
  if constexpr (requires {
                  Instance::axes_asked();
                  S::mesh_type::data;
                })
    for (auto const& axis : Instance::axes_asked())
      if (axis.name == S::mesh_type::data && axis.same_rows) return false;
  return true;
}

}  // namespace detail

namespace detail {

template <class M, class S> struct InstanceOf {
  using type = typename M::template instance<typename S::device>;
};
template <class M, class S> requires(StrategyTraits<S>::has_stages) struct InstanceOf<M, S> {
  using type = typename S::template instance_of<M>;
};

}  // namespace detail

/// The copies of a model under a strategy.
template <class M, class S> using InstanceUnder = typename detail::InstanceOf<M, S>::type;

/// Strategies that work with what R gives.
template <class S, class R> concept Takes = StrategyTraits<S>::template takes<R>;

namespace detail {

/// True if S has no choice of this kind, or one that the compiler can read as true or false.
template <class S>
concept choices_are_constants =
    (!requires { &S::reduces_every_step; } || requires { typename std::bool_constant<S::reduces_every_step>; }) &&
    (!requires { &S::applies_sums; } || requires { typename std::bool_constant<S::applies_sums>; }) &&
    (!requires { &S::shards_optimizer; } || requires { typename std::bool_constant<S::shards_optimizer>; }) &&
    (!requires { &S::shards_gradients; } || requires { typename std::bool_constant<S::shards_gradients>; }) &&
    (!requires { &S::shards_variables; } || requires { typename std::bool_constant<S::shards_variables>; }) &&
    (!requires { &S::shares_variables; } || requires { typename std::bool_constant<S::shares_variables>; });

}  // namespace detail

/// Transports whose ranks go on without a lost one, where S asks for it: strategies with servers do.
template <class T, class S>
concept Spares = !HasServers<S> || requires(typename T::endpoint& at, Rank peer) { at.lost(peer); };

/// Device on which strategies compute unless another one is named.
using DefaultDevice = Cpu;

/// Archetypes with which the concepts below are checked: the least that a replica and a model offer to a strategy.
namespace archetype {

/// The least that a replica offers to a strategy.
struct Replica {
  void all_reduce(Gradients&) {}
};
/// The least that a model offers to a strategy.
struct Instance {
  struct {
    void apply(Variables const&, Gradients const&) {}
  } optimizer;
  struct {
    Variables variables() const { return {}; }
  } net;
};

}  // namespace archetype

/// A distribution strategy: which devices take part, where variables are stored, and how a step uses its gradients.
template <class S>
concept Strategy =
    requires {
      typename S::device;     // that it computes on
      typename S::placement;  // where the copies of its variables are stored
    } && Device<typename S::device> && Placement<typename S::placement> &&
    requires(S const& strategy, archetype::Replica& replica, archetype::Instance& model, Gradients& gradients) {
      { strategy.num_replicas() } -> std::same_as<int>;  // in the whole job, not in this process
      { strategy.group() } -> std::same_as<Group>;       // all ranks, and which this process has
      { strategy.local_devices() } -> std::same_as<std::vector<typename S::device>>;  // one per rank of this process
      { strategy.update(replica, model, gradients) } -> std::same_as<void>;  // ends a step, as the strategy defines it
    };

namespace detail {

template <class S> struct DeviceOf {
  using type = DefaultDevice;  // S is not a strategy: Live reports it
};
template <Strategy S> struct DeviceOf<S> {
  using type = typename S::device;
};

}  // namespace detail

}  // namespace chorale
