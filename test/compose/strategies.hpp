// SPDX-License-Identifier: Apache-2.0
//
// The strategies that matrix_test.cpp is compiled for, and what each promises.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/parameter_server.hpp>

namespace strategies {

using namespace chorale;

enum class Promise { equal, learns };  // what one replica with the whole batch has; or only a smaller loss

/// How many of the reduces that matrix_test.cpp tries over threads the front door lets through: all but the
/// hierarchical one, which needs layers; those that give plain sums; those, and the one of shards; and those that have
/// halves. refused_test.py asks the compiler what it says to the others.
constexpr int all_but_layered = 10, sums_only = 6, sums_and_shards = 7, halves = 3;

struct one_device {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = all_but_layered;
  static auto make() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }
};
struct mirrored {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = all_but_layered;
  static auto make() { return MirroredStrategy{Cpu::logical(2)}; }
};
struct central_storage {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = all_but_layered;
  static auto make() { return CentralStorageStrategy{Cpu::logical(2)}; }
};
struct multi_worker_mirrored {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = all_but_layered;
  static auto make() { return MultiWorkerMirroredStrategy{Cluster::local(2), Cpu::logical(2)}; }
};
struct sharded {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = halves;
  static auto make() { return ShardedStrategy<Zero::one>{Cpu::logical(4)}; }
};
struct local_sgd {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = sums_only;
  static auto make() { return chorale::local_sgd<1>(mirrored::make()); }
};
struct gossip {
  static constexpr auto promise     = Promise::learns;
  static constexpr int over_threads = sums_only;
  static auto make() { return Gossip{mirrored::make()}; }
};
struct synchronous_servers {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = sums_and_shards;
  static auto make() {
    return ParameterServerStrategy{Cluster::local(2, 2), Synchronous{},
                                   placement::Partitioned<placement::FixedShards<2>>{}};
  }
};
struct bounded_servers {
  static constexpr auto promise     = Promise::equal;
  static constexpr int over_threads = sums_and_shards;
  static auto make() {
    return ParameterServerStrategy{Cluster::local(2, 1), BoundedStaleness<0>{}, placement::RoundRobin{}};
  }
};
struct backup_servers {
  static constexpr auto promise     = Promise::learns;
  static constexpr int over_threads = sums_only;
  static auto make() { return ParameterServerStrategy{Cluster::local(2, 2), BackupWorkers<1>{}}; }
};
struct asynchronous_servers {
  static constexpr auto promise     = Promise::learns;
  static constexpr int over_threads = sums_only;
  static auto make() { return ParameterServerStrategy{Cluster::local(2, 2), Asynchronous{}}; }
};

}  // namespace strategies
