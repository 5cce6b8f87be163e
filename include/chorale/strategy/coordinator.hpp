// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/strategy/coordinator/coordinator.hpp>
#include <chorale/strategy/coordinator/worker.hpp>
#include <chorale/strategy/coordinator/worker_context.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/parameter_server/host.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale {

/// Trains with a coordinator: a program that runs on one rank, and has workers run closures in any order.
///
///   auto const train = Closure{"train", [](auto& here, WorkerStream<Batch>& batches, int steps) {
///     auto loss = Sum<float>{};
///     for (Batch batch; steps > 0 && batches.next(batch); --steps) loss += here.step(batch);
///     return loss;
///   }};
///   auto const digits = PerWorkerDataset<Batch>{"digits", [&](WorkerShare s) { return rows_of(s).batch(32); }};
///   coordinate(ParameterServerStrategy{Cluster::from_env()}, model, TcpTransport{}, std::tuple{train, digits},
///              [&](auto& coordinator, auto& here) {
///     auto const batches = coordinator.create_per_worker_dataset(digits);
///     for (int i = 0; i < 100; ++i) coordinator.schedule(train, batches, 10);
///     coordinator.join();
///     here.pull();                                                  // the variables after all closures
///   });
///
/// Every process calls this; the cluster defines its role: the chief, or worker 0 if there is none, runs `program`;
/// other workers run closures, and servers serve, until program has returned.
///
/// known     all closures and datasets of the program
/// program   called as program(coordinator, here): a Coordinator, and a WorkerContext that runs no closures
/// returns   a report from each server of this process
/// keeps     what Coordinator keeps if a worker is lost. The consistency is Asynchronous: no closure waits for another
/// throws    what program threw; BadArgument when there is no worker besides the coordinator; PeerLost in workers when
///           the coordinator is lost, or a server
template <placement::Sharding P, Device D, class Model, class T, class... Known, class Program>
std::vector<parameter_server::Report> coordinate(ParameterServerStrategy<Asynchronous, P, D> const& strategy,
                                                 Model const& model, T transport, std::tuple<Known...> const& known,
                                                 Program&& program, Seed seed = {}) {
  using S = ParameterServerStrategy<Asynchronous, P, D>;
  static_assert(nn::ModelOn<Model, D>, "chorale: the model argument is not a Model. It needs input, output and "
                                       "instantiate(device, seed). See nn::compile");
  static_assert(Transport<T> && Spares<T, S>, "chorale: over this Transport all ranks fail together, but a lost worker "
                                              "of a coordinator is only missed. Use TcpTransport or "
                                              "SharedMemoryTransport, or LocalTransport for threads. See "
                                              "docs/30-compose.md");
  using E    = typename T::endpoint;
  using Here = WorkerContext<Model, D, E>;
  auto const workers = strategy.cluster().workers() - 1;
  CHORALE_EXPECTS(workers >= 1, "a coordinator needs workers beside it, but " + strategy.cluster().found_in() +
                                    " names 1 task that is the chief or a worker, and that one coordinates");
  S::prepare(transport);
  auto endpoints = transport.connect(strategy.tasks());
  auto host      = parameter_server::ServerHost<E>{};                      // ends after the workers have left
  auto here      = std::vector<std::unique_ptr<Here>>{};
  for (auto& at : endpoints)
    if (at.rank() <= workers)
      here.push_back(std::make_unique<Here>(model, strategy.worker_devices(), seed, at, workers));
  auto const shards = strategy.shards(Model::plan, decltype(model.optimizer)::slots, 1);
  host.serve(strategy, model, seed, Span<E>{endpoints}.subspan(here.size()), shards);

  auto const run = [&](std::size_t i) {
    auto& at = endpoints[i];
    try {
      auto const scope = typename D::Scope{here[i]->devices().front()};
      here[i]->connect(shards, strategy.options());
      if (at.rank() == 0) {
        auto coordinator = Coordinator<E, Here>{at, workers};
        program(coordinator, *here[i]);
        coordinator.leave();
      } else {
        ClosureWorker{at, *here[i], known}.serve();
      }
      here[i]->leave();
    } catch (std::exception const& error) {
      fail(at, error.what());
      throw;
    }
  };
  if (!here.empty()) {
    auto threads = std::vector<NamedThread>{};
    for (std::size_t i = 1; i < here.size(); ++i)
      threads.emplace_back("worker " + std::to_string(endpoints[i].rank()), [&run, i] {
        try {
          run(i);
        } catch (std::exception const&) {                                  // a worker is lost: the coordinator goes on
        }
      });
    run(0);
  }
  here.clear();
  return host.wait();
}

}  // namespace chorale
