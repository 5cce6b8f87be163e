// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/strategy/runtime/replica_threads.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Context of a closure on its worker: a copy of the model on each device of the worker, and the servers.
///
/// keeps   when a closure begins, the copies have the servers' current values
template <class Model, class D, Endpoint E>
class WorkerContext {
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
  void leave() { client_->leave(); }                                       // the last call
  void begin() { pull(); }                                                 // before each closure

  int index() const { return at_->rank() - 1; }                            // of `count()`; -1: the coordinator
  int count() const { return count_; }
  std::vector<D> const& devices() const { return devices_; }

  /// The copy of the model on the first device.
  instance& model() { return copies_.front(); }
  parameter_server::Client<E>& servers() { return *client_; }              // e.g. for rows of a table

  /// Computes forward, loss and backward of a batch, each device a part of it; the gradients of all are one push. Then
  /// the copies have the servers' values.
  ///
  /// returns   the loss, a sum over rows
  template <class Batch>
  Sum<float> step(Batch const& batch) {
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

  /// Replaces the servers' values by those of the first copy, such as those of a checkpoint.
  void assign() {
    client_->assign(model().net.variables());
    spread();
  }

 private:
  template <class Work>
  void run(Work&& work) {
    team_.run(work, [](std::size_t, std::string const&) {});               // no device waits for another
  }

  /// Adds the gradients of all copies, in their order, to those of the first; each device adds a part of them.
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
  }

  void spread() {
    if (copies_.size() == 1) return;
    run([&](std::size_t i) {
      if (i != 0) std::ranges::copy(model().net.variables().values, copies_[i].net.variables().values.begin());
    });
  }

  E* at_;
  int count_;
  std::vector<D> devices_;
  std::vector<instance> copies_;
  std::unique_ptr<parameter_server::Client<E>> client_;
  ReplicaThreads<D> team_;
  std::vector<Sum<float>> losses_;
};

}  // namespace chorale
