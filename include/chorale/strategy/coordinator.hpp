// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/model/model.hpp>
#include <chorale/strategy/coordinator/coordinator.hpp>
#include <chorale/strategy/coordinator/worker.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/host.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/strategy/runtime/replica_threads.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale {

/// Context of a closure on its worker: a copy of the model on each device of the worker, and the servers.
///
/// keeps   when a closure begins, the copies have the servers' current values
template <class Model, class D, Endpoint E> class WorkerContext {
 public:
  using instance = typename Model::template instance<D>;

  /// count   of the workers that run closures
  WorkerContext(Model const& model, std::vector<D> devices, Seed seed, E& at, int count)
      : at_{&at}, count_{count}, devices_{std::move(devices)}, team_{devices_}, losses_(devices_.size()) {
    copies_.reserve(devices_.size());
    for (auto const& device : devices_) copies_.push_back(model.instantiate(device, seed));
  }

  void connect(parameter_server::ShardLayout const& shards, ParameterOptions const& options) {
    client_ = std::make_unique<parameter_server::Client<E>>(*at_, shards, options);
  }
  void leave() { client_->leave(); }  // the last call
  void begin() { pull(); }            // before each closure

  int index() const { return at_->rank() - 1; }  // of `count()`; -1: the coordinator
  int count() const { return count_; }
  std::vector<D> const& devices() const { return devices_; }

  /// The copy of the model on the first device.
  instance& model() { return copies_.front(); }
  parameter_server::Client<E>& servers() { return *client_; }  // e.g. for rows of a table

  /// Computes forward, loss and backward of a batch, each device a part of it; the gradients of all are one push. Then
  /// the copies have the servers' values.
  ///
  /// returns   the loss, a sum over rows
  template <class Batch> Sum<float> step(Batch const& batch) {
    run([&](std::size_t i) {
      auto const part = batch.part(static_cast<int>(i), static_cast<int>(copies_.size()));
      losses_[i]      = copies_[i].value_and_gradient(part, part.first_row, LooksAtEnd{});
    });
    add_up();
    client_->push_and_pull(model().gradients(), model().net.variables(), 0);
    spread();
    auto loss = Sum<float>{};
    for (auto const& one : losses_) loss += one;
    for (auto& copy : copies_) ++copy.optimizer.now.step;
    return loss;
  }

  void pull() {
    client_->pull(model().net.variables());
    spread();
  }

  /// Has the server that stores some variables call an update; this worker's copies are as they were until the next
  /// pull. See parameter_server::Client::update_on_server.
  template <class F, class... Args>
  auto update_on_server(ServerUpdate<F> const& update, std::vector<std::string_view> const& names,
                        Args const&... args) {
    return client_->update_on_server(model().net.variables(), update, names, args...);
  }

  /// Replaces the servers' values by the values of the first copy, e.g. from a checkpoint.
  void assign() {
    client_->assign(model().net.variables());
    spread([&](Span<float> to, std::uint64_t&) { std::ranges::copy(model().net.variables().values, to.begin()); });
  }

 private:
  template <class Work> void run(Work&& work) {
    team_.run(work, [](std::size_t, std::exception const&) {});  // no device waits for another
  }

  /// Adds the gradients of all copies, in their order, to the first copy's gradients; each device adds a part of them.
  void add_up() {
    if (copies_.size() == 1) return;
    run([&](std::size_t i) {
      auto const to   = model().gradients().values;
      auto const mine = share(to.size(), static_cast<int>(i), static_cast<int>(copies_.size()));
      for (std::size_t c = 1; c < copies_.size(); ++c) {
        auto const from = copies_[c].gradients().values;
        for (auto k = mine.begin; k < mine.end; ++k) to[k] += from[k];
      }
    });
    for (std::size_t t = 0; t < model().gradients().tables.size(); ++t)
      for (std::size_t c = 1; c < copies_.size(); ++c)
        model().gradients().tables[t].add(copies_[c].gradients().tables[t].view());
  }

  void spread() {
    spread([&](Span<float> to, std::uint64_t& seen) {
      client_->pulled().copy(client_->tables(), model().net.variables().values.data(), to, seen);
    });
  }
  template <class Copy> void spread(Copy const& copy) {
    if (copies_.size() == 1) return;
    run([&](std::size_t i) {
      if (i != 0) copy(copies_[i].net.variables().values, seen_[i]);
    });
  }

  E* at_;
  int count_;
  std::vector<D> devices_;
  std::vector<instance> copies_;
  std::unique_ptr<parameter_server::Client<E>> client_;
  std::vector<std::uint64_t> seen_ = std::vector<std::uint64_t>(devices_.size());  // last pull whose values a copy has
  ReplicaThreads<D> team_;
  std::vector<Sum<float>> losses_;
};

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
/// throws    what program threw; BadArgument when the coordinator has no other worker; PeerLost in workers when
///           the coordinator is lost, or a server
template <placement::Sharding P, Device D, class Model, class T, class... Known, class Program>
std::vector<parameter_server::Report> coordinate(ParameterServerStrategy<Asynchronous, P, D> const& strategy,
                                                 Model const& model, T transport, std::tuple<Known...> const& known,
                                                 Program&& program, Seed seed = {}) {
  using S = ParameterServerStrategy<Asynchronous, P, D>;
  static_assert(ModelOn<Model, D>,
                "chorale: the model argument is not a Model. It needs batch, metric_names, plan, "
                "optimizer and instantiate(device, seed). See nn::compile and custom_model");
  static_assert(Transport<T> && Spares<T, S>,
                "chorale: over this Transport all ranks fail together, but a lost worker "
                "of a coordinator is only missed. Use TcpTransport or "
                "SharedMemoryTransport, or LocalTransport for threads. See "
                "docs/30-compose.md");
  using E            = typename T::endpoint;
  using Here         = WorkerContext<Model, D, E>;
  auto const workers = strategy.cluster().workers() - 1;
  CHORALE_EXPECTS(workers >= 1, "a coordinator needs workers beside it, but " + strategy.cluster().found_in() +
                                    " names 1 task that is the chief or a worker, and that one coordinates");
  S::prepare(transport);
  auto endpoints = transport.connect(strategy.tasks());
  auto host      = parameter_server::ServerHost<E>{};  // ends after the workers have left
  auto here      = std::vector<std::unique_ptr<Here>>{};
  for (auto& at : endpoints)
    if (at.rank() <= workers)
      here.push_back(std::make_unique<Here>(model, strategy.worker_devices(), seed, at, workers));
  auto const shards = strategy.shards(model.plan, decltype(model.optimizer)::slots, 1);
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
        } catch (std::exception const&) {  // a worker is lost: the coordinator continues
        }
      });
    run(0);
  }
  here.clear();
  return host.wait();
}

}  // namespace chorale
