// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/strategy/parameter_server/replica_group.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/strategy/replica.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// Statistics of one server.
struct Report {
  int server                 = 0;
  std::size_t variable_bytes = 0;  // of its shard, slots not counted
  ServerStatistics ledger{};
  std::vector<std::string> losses{};  // of each lost worker, why

  /// Text such as "server 0 of 2: 469 updates, 0 dropped, 1 worker lost; staleness 0: 3.2 %, 1: 95.1 %, 2: 1.7 %", and
  /// a line for each lost worker.
  std::string text(int servers) const {
    auto const count = [](std::uint64_t n, char const* what) {
      return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
    };
    auto line = "server " + std::to_string(server) + " of " + std::to_string(servers) + ": " +
                count(ledger.updates, "update") + ", " + std::to_string(ledger.late + ledger.skipped) + " dropped, " +
                count(ledger.lost, "worker") + " lost; staleness";
    auto all = std::uint64_t{0};
    for (auto const n : ledger.staleness) all += n;
    for (std::size_t i = 0; i < ledger.staleness.size(); ++i) {
      if (ledger.staleness[i] == 0) continue;
      auto const per_mille = 1'000 * ledger.staleness[i] / all;
      line.append(" ") += std::to_string(i) + (i + 1 == ledger.staleness.size() ? " and more: " : ": ") +
                          std::to_string(per_mille / 10) + "." + std::to_string(per_mille % 10) + " %,";
    }
    if (all == 0) line += " unknown ";
    line.pop_back();
    for (auto const& loss : losses) line.append("\n  ").append(loss, 0, loss.find('\n'));
    return line;
  }
};

/// The parameter servers of a job in this process: each is a thread, or a rank that its transport runs.
///
/// keeps   endpoints outlive the host; a server ends when every worker has left or is lost. An exception of a rank that
///         is not a thread is thrown by the run in which it serves
template <class E> class ServerHost {
 public:
  /// Starts the servers, which come after the replicas among the endpoints of this process, and connects the replicas.
  ///
  /// throws  BadArgument when it was called before: servers hold the variables of one model
  template <class S, class Model, class Replica>
  void begin(S const& strategy, Model const& model, Seed seed, Span<E> endpoints, Span<Replica> replicas) {
    if (begun_)
      throw BadArgument{"servers hold the variables of one model, and create() was called for a second one.",
                        "MultiWorkerMirroredStrategy, under which a loop may train several."};
    auto const each   = static_cast<std::size_t>(strategy.replicas_per_worker());
    auto const shards = strategy.shards(model.plan, decltype(model.optimizer)::slots, static_cast<int>(each));
    Replica::expect_fit(shards, strategy.options());
    begun_ = true;
    serve(strategy, model, seed, endpoints.subspan(replicas.size()), shards);
    for (std::size_t first = 0; first < replicas.size(); first += each) {
      auto const group = std::make_shared<ReplicaGroup<E>>(each);
      for (std::size_t i = 0; i < each; ++i) replicas[first + i].connect(shards, strategy.options(), group, i);
    }
  }

  /// Starts the servers, without replicas.
  template <class S, class Model>
  void serve(S const& strategy, Model const& model, Seed seed, Span<E> servers, ShardLayout const& shards) {
    using Device = typename S::device;
    if (servers.empty()) return;
    auto const first = model.instantiate(Device::visible().front(), seed);
    for (auto& at : servers)
      start<Device>(at, typename S::consistency{}, model.optimizer, shards, first.net.variables().values,
                    strategy.options(), strategy.updates());
  }

  /// Runs one server on its own rank until go_on() returns false. Only if servers are not threads.
  template <class GoOn> void serve_while(std::size_t server, GoOn const& go_on) {
    if (server < tasks_.size()) tasks_[server]->serve(go_on);
  }

  /// Waits until all servers have ended, and returns their reports.
  ///
  /// throws  the exception of the first server that failed
  std::vector<Report> wait() {
    threads_.clear();  // joins the threads
    auto reports = std::vector<Report>{};
    for (auto const& task : tasks_) {
      if (task->failure) std::rethrow_exception(std::exchange(task->failure, nullptr));
      reports.push_back(task->report);
    }
    return reports;
  }

 private:
  struct Task {
    Report report;
    std::exception_ptr failure;
    std::function<void(std::function<bool()> const&)> serve;  // if it is not a thread
  };

  /// initial   the flat buffer of all variables
  template <class D, Consistency C, class OptimizerState>
  void start(E& at, C consistency, OptimizerState const& rule, ShardLayout const& shards, Span<float const> initial,
             ParameterOptions options, std::vector<KnownUpdate> updates) {
    auto service = std::make_shared<Server<C, OptimizerState, E>>(at, consistency, rule, shards, initial, options,
                                                                  std::move(updates));
    auto task    = std::make_shared<Task>();
    task->report.server         = at.rank() - shards.rank_of(0);
    task->report.variable_bytes = shards.elements(task->report.server) * sizeof(float);
    tasks_.push_back(task);
    if constexpr (RunsItsRanks<E>) {
      task->serve = [service, to = task.get()](auto const& go_on) {
        service->serve(go_on);
        to->report.ledger = service->ledger();
        to->report.losses = service->losses();
      };
    } else {
      threads_.push_back(
          std::make_unique<NamedThread>("server " + std::to_string(task->report.server), [service, task, &at] {
            auto const scope = typename D::Scope{D::logical(1).front()};
            try {
              service->serve();
            } catch (std::exception const& error) {
              task->failure = std::current_exception();
              fail(at, error.what());
            }
            task->report.ledger = service->ledger();
            task->report.losses = service->losses();
          }));
    }
  }

  bool begun_ = false;
  std::vector<std::shared_ptr<Task>> tasks_;
  std::vector<std::unique_ptr<NamedThread>> threads_;
};

}  // namespace chorale::parameter_server
