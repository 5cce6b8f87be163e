// SPDX-License-Identifier: Apache-2.0
//
// The strategies that matrix_test.cpp is compiled for, and what each promises.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/parameter_server_strategy.hpp>

namespace strategies {

using namespace chorale;

enum class Promise { equal, learns };          // what one replica with the whole batch has; or only a smaller loss

struct one_device {
  static constexpr auto promise = Promise::equal;
  static auto make() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }
};
struct mirrored {
  static constexpr auto promise = Promise::equal;
  static auto make() { return MirroredStrategy{Cpu::logical(2)}; }
};
struct central_storage {
  static constexpr auto promise = Promise::equal;
  static auto make() { return CentralStorageStrategy{Cpu::logical(2)}; }
};
struct multi_worker_mirrored {
  static constexpr auto promise = Promise::equal;
  static auto make() { return MultiWorkerMirroredStrategy{Cluster::local(2), Cpu::logical(2)}; }
};
struct local_sgd {
  static constexpr auto promise = Promise::equal;
  static auto make() { return chorale::local_sgd<1>(mirrored::make()); }
};
struct gossip {
  static constexpr auto promise = Promise::learns;
  static auto make() { return Gossip{mirrored::make()}; }
};
struct synchronous_servers {
  static constexpr auto promise = Promise::equal;
  static auto make() {
    return ParameterServerStrategy{Cluster::local(2, 2), Synchronous{},
                                   placement::Partitioned<placement::FixedShards<2>>{}};
  }
};
struct bounded_servers {
  static constexpr auto promise = Promise::equal;
  static auto make() {
    return ParameterServerStrategy{Cluster::local(2, 1), BoundedStaleness<0>{}, placement::RoundRobin{}};
  }
};
struct backup_servers {
  static constexpr auto promise = Promise::learns;
  static auto make() { return ParameterServerStrategy{Cluster::local(2, 2), BackupWorkers<1>{}}; }
};
struct asynchronous_servers {
  static constexpr auto promise = Promise::learns;
  static auto make() { return ParameterServerStrategy{Cluster::local(2, 2), Asynchronous{}}; }
};

}  // namespace strategies
