// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/strategy.hpp>

#include <utility>
#include <vector>

namespace chorale {

/// Replica of a CentralStorageStrategy: the first replica updates the variables that all read. A custom training loop
/// calls optimizer.apply() on every replica after all_reduce(); the next step then waits for the update.
template <class R, class E> class CentralReplica : public Replica<R, E> {
  using Base = Replica<R, E>;

 public:
  using Base::Base;

  template <class Model, class Batch> ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    if (may_be_written_) barrier();
    return Base::value_and_gradient(model, batch);
  }
  template <class Model, class Batch, class AtEnd = LooksAtEnd>
  ValueAndGradient value_and_gradient_ahead(Model& model, Batch const& batch, AtEnd at_end = {}) {
    if (may_be_written_) barrier();
    return Base::value_and_gradient_ahead(model, batch, at_end);
  }
  using Base::all_reduce;  // of tensors
  void all_reduce(Gradients& gradients) {
    Base::all_reduce(gradients);
    may_be_written_ = true;
  }
  void barrier() {
    Base::barrier();
    all_met();
  }

  /// Marks that all replicas have synchronized since their last operation.
  void all_met() { may_be_written_ = false; }

 private:
  bool may_be_written_ = false;  // the variables, by the first replica
};

/// Synchronous data parallelism in one process with one copy of the variables: one replica per compute device, which
/// reads the copy in place, and one parameter device, which updates it once per step.
///
///   CentralStorageStrategy{Cpu::split(4)}              the first compute device updates
///   CentralStorageStrategy{Cpu::split(4), Cpu{}}       all cores update
///
/// keeps   the memory of one copy of variables and optimizer state; each replica has its own gradients. A step is that
///         of MirroredStrategy, bit by bit, and then one barrier
/// throws  BadArgument when the list of devices is empty
/// source  tf.distribute.experimental.CentralStorageStrategy
template <Device D = DefaultDevice> class CentralStorageStrategy {
 public:
  using device                                   = D;
  using placement                                = chorale::placement::Central;
  static constexpr bool reduces_every_step       = true;
  static constexpr bool shares_variables         = true;
  template <class R, class E> using replica_type = CentralReplica<R, E>;

  explicit CentralStorageStrategy(std::vector<D> compute_devices = D::visible())
      : CentralStorageStrategy{compute_devices, first(compute_devices)} {}
  CentralStorageStrategy(std::vector<D> compute_devices, D parameter_device)
      : devices_{std::move(compute_devices)}, parameter_device_{std::move(parameter_device)} {
    static_cast<void>(first(devices_));
  }

  int num_replicas() const { return replicas_on(devices_); }
  Group group() const { return Group::all_local(static_cast<int>(devices_.size())); }
  std::vector<D> local_devices() const { return devices_; }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);  // now nobody reads the variables any more
    if (replica.id() == 0) {
      auto const scope = typename D::Scope{parameter_device_};
      model.optimizer.apply(model.net.variables(), gradients);
    } else {
      model.optimizer.follow(gradients);
    }
    replica.barrier();  // now everybody may
  }

 private:
  static D const& first(std::vector<D> const& devices) {
    CHORALE_EXPECTS(!devices.empty(), "CentralStorageStrategy got a list of 0 compute devices; a replica needs one");
    return devices.front();
  }

  std::vector<D> devices_;
  D parameter_device_;
};

CentralStorageStrategy() -> CentralStorageStrategy<>;

}  // namespace chorale
