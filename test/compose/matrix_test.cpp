// SPDX-License-Identifier: Apache-2.0
//
// One model, one step, one file: compiled once for each strategy. Each reduce over each transport either trains the
// model as the strategy promises, or the front door refuses it; docs/30-compose.md says which.
#include "test/support/reference.hpp"

#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/parameter_server_strategy.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <string_view>

using namespace chorale;
using tiny::quietly;

namespace {

enum class Promise { equal, learns };          // what one replica with the whole batch has; or only a smaller loss

/// The strategy that this file is compiled for.
auto strategy() {
#if STRATEGY_one_device
  return OneDeviceStrategy{Cpu::logical(1)[0]};
#elif STRATEGY_mirrored
  return MirroredStrategy{Cpu::logical(2)};
#elif STRATEGY_central_storage
  return CentralStorageStrategy{Cpu::logical(2)};
#elif STRATEGY_multi_worker_mirrored
  return MultiWorkerMirroredStrategy{Cluster::local(2), Cpu::logical(2)};
#elif STRATEGY_local_sgd
  return local_sgd<1>(MirroredStrategy{Cpu::logical(2)});
#elif STRATEGY_gossip
  return Gossip{MirroredStrategy{Cpu::logical(2)}};
#elif STRATEGY_synchronous_servers
  return ParameterServerStrategy{Cluster::local(2, 2), Synchronous{},
                                 placement::Partitioned<placement::FixedShards<2>>{}};
#elif STRATEGY_bounded_servers
  return ParameterServerStrategy{Cluster::local(2, 1), BoundedStaleness<0>{}, placement::RoundRobin{}};
#elif STRATEGY_backup_servers
  return ParameterServerStrategy{Cluster::local(2, 2), BackupWorkers<1>{}};
#elif STRATEGY_asynchronous_servers
  return ParameterServerStrategy{Cluster::local(2, 2), Asynchronous{}};
#endif
}
#if STRATEGY_gossip || STRATEGY_backup_servers || STRATEGY_asynchronous_servers
constexpr auto promise = Promise::learns;
#else
constexpr auto promise = Promise::equal;
#endif

using S = decltype(strategy());

/// Under R over T: trains as promised, where the front door lets it.
template <class R, class T>
void check(std::string_view name, T transport = {}) {
  INFO(name << ": " << __PRETTY_FUNCTION__);
  if constexpr (detail::fit_together<S, R, T>) {
    static auto const data     = tiny::uneven();
    static auto const expected = tiny::reference(data);
    auto trainer               = tiny::learner_under(strategy(), R{}, transport);
    auto const history         = trainer.fit(data, {.epochs = promise == Promise::equal ? 1 : 4, .show = Show::nothing});
    CHECK(history.front().scores.rows() == 279);
    CHECK(trainer.evaluate(data).rows() == 279);
    for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
    auto const apart = tiny::difference(tiny::values_of(trainer), expected);
    if constexpr (promise == Promise::learns) CHECK(history.back().scores.loss() < history.front().scores.loss());
    else if constexpr (requires { typename R::exact; }) CHECK(apart < 0.3);           // it rounds, or leaves out
    else CHECK(apart < 1e-5);
  } else {
    CHECK((!ReduceAlgorithm<R, T> || !Takes<S, R> || !Spares<T, S>));                 // Live says which
  }
}

template <class T, class... R>
void check_each(std::string_view name, T const& transport = {}) {
  (check<R>(name, transport), ...);
}

}  // namespace

TEST_CASE("every reduce trains the model, or is refused", "[compose]") {
  check_each<LocalTransport, RingAllReduce, DoubleTreeAllReduce, RecursiveDoublingAllReduce, ReduceToOne, AutoAllReduce,
             DirectAllReduce, HierarchicalAllReduce<>, Wire<bf16>, TopK<500>, Reproducible<8>>("threads");
}

TEST_CASE("every transport trains the model, or is refused", "[compose]") {
  check_each<SharedMemoryTransport, RingAllReduce, DirectAllReduce>("shared memory");
  check_each<TcpTransport, RingAllReduce, DirectAllReduce>("TCP");
  if constexpr (!HasServers<S> && !std::is_same_v<S, OneDeviceStrategy<>>)
    check_each<Layered<LocalTransport, LocalTransport>, RingAllReduce, HierarchicalAllReduce<>>(
        "layered", Layered<LocalTransport, LocalTransport>{.ranks_per_node = 2});
}
