// SPDX-License-Identifier: Apache-2.0
//
// The strategies of the table of features: the columns.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/pipeline.hpp>
#ifdef FEATURES_ON_PJRT
#include "test/pjrt/interpreting_plugin.hpp"

#include <chorale/pjrt/tpu.hpp>
#endif

namespace columns {

using namespace chorale;

/// What every column has.
///
/// R       the reduction
/// alike   replicas have the same rows, each in its half of a batch: those that learn apart come to what one device
///         learns only then
/// near    numbers are of other kernels than those of Cpu
template <class R = Reproducible<8>, bool alike = false, bool near = false> struct Of {
  static constexpr bool same_rows = alike, is_near = near;
  static R reduce() { return {}; }
};

struct one_device : Of<> {
  static auto make() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }
};
struct one_by_ring : Of<RingAllReduce> {
  static auto make() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }
};
struct mirrored : Of<> {
  static auto make() { return MirroredStrategy{Cpu::logical(2)}; }
};
struct by_ring : Of<RingAllReduce> {
  static auto make() { return MirroredStrategy{Cpu::logical(2)}; }
};
struct central_storage : Of<> {
  static auto make() { return CentralStorageStrategy{Cpu::logical(2)}; }
};
struct workers : Of<> {
  static auto make() { return MultiWorkerMirroredStrategy{Cluster::local(2), Cpu::logical(2)}; }
};
struct local_sgd : Of<RingAllReduce, true> {
  static auto make() { return chorale::local_sgd<1>(MirroredStrategy{Cpu::logical(2)}); }
};
struct gossip : Of<RingAllReduce, true> {
  static auto make() { return Gossip{MirroredStrategy{Cpu::logical(2)}}; }
};
struct synchronous : Of<> {
  static auto make() {
    return ParameterServerStrategy{Cluster::local(2, 2), Synchronous{},
                                   placement::Partitioned<placement::FixedShards<2>>{}};
  }
};
struct bounded : Of<> {
  static auto make() {
    return ParameterServerStrategy{Cluster::local(2, 1), BoundedStaleness<0>{}, placement::RoundRobin{}};
  }
};
struct backup : Of<RingAllReduce> {
  static auto make() { return ParameterServerStrategy{Cluster::local(2, 2), BackupWorkers<0>{}}; }
};
struct asynchronous : Of<RingAllReduce> {  // of one worker, so that it is of one result
  static auto make() { return ParameterServerStrategy{Cluster::local(1, 2), Asynchronous{}}; }
};
struct zero_one : Of<> {
  static auto make() { return ShardedStrategy<Zero::one>{Cpu::logical(2)}; }
};
struct zero_two : Of<> {
  static auto make() { return ShardedStrategy<Zero::two>{Cpu::logical(2)}; }
};
struct zero_three : Of<> {
  static auto make() { return ShardedStrategy<Zero::three>{Cpu::logical(3)}; }
};
struct hybrid : Of<> {
  static auto make() { return HybridStrategy<Zero::three, 2>{Cpu::logical(4)}; }
};
struct mesh : Of<> {
  static auto make() { return MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::logical(4)}}; }
};
struct mesh_shards : Of<> {
  static auto make() {
    return MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::logical(4)}, sharded<Zero::one>("data")};
  }
};
struct stages : Of<> {
  static auto make() {
    return MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<8>>()};
  }
};
#ifdef FEATURES_ON_PJRT
struct tpu : Of<RingAllReduce, false, true> {
  static auto make() { return TPUStrategy<2>{Pjrt::open(chorale::test::fake::interpreting_plugin(), {.devices = 2})}; }
};
struct tpu_shards : Of<RingAllReduce, false, true> {
  static auto make() {
    return TPUStrategy<2, Zero::one>{Pjrt::open(chorale::test::fake::interpreting_plugin(), {.devices = 2})};
  }
};
struct hosts_of_tpus : Of<RingAllReduce, false, true> {
  static auto make() {
    auto const all = Pjrt::open(chorale::test::fake::interpreting_plugin(), {.devices = 2});
    return MultiWorkerMirroredStrategy{Cluster::local(2), std::vector{all.first(1)}};
  }
};
#endif

}  // namespace columns
