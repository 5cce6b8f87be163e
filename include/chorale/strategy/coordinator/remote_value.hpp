// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/strategy/coordinator/connection.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace chorale {

template <class E, class Here>
class Coordinator;

/// The result of a closure, once a worker has reported it. Copies share one result. See Coordinator::fetch().
template <class R>
class RemoteValue {
 public:
  bool ready() const { return task_->stage == detail::ClosureStage::done; }

 private:
  template <class E, class Here>
  friend class Coordinator;
  explicit RemoteValue(std::shared_ptr<detail::ClosureTask> task) : task_{std::move(task)} {}

  std::shared_ptr<detail::ClosureTask> task_;
};

/// A dataset that this coordinator's workers share, as an argument of closures. See create_per_worker_dataset().
template <class Element>
class PerWorkerHandle {
  template <class E, class Here>
  friend class Coordinator;
  explicit PerWorkerHandle(std::size_t index) : index_{index} {}

  std::size_t index_;
};

}  // namespace chorale
