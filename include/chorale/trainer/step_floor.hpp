// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/model/work.hpp>
#include <chorale/tensor/cpu/machine_speed.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale {

/// The least time in which the replicas of this process can make a step: its multiplications at the speed of a large
/// matrix product, or the bytes that it must move at the speed of memory, whichever is longer.
///
///   products    those of forward and backward, for the rows of all replicas here: NetworkWork
///   bytes       of each replica its variables, gradients and slots: gradients are written; an update reads them, and
///               reads and writes variables and slots. Activations and rows of tables are moved once. Of tables nothing
///               else counts, as it depends on which ids are equal
///
/// keeps   a lower limit: additions, exponentials, rereading and communication count as nothing
/// source  LLM.Q, which reports the speed of training as a part of that of the machine
class StepFloor {
 public:
  /// update_slots   of the optimizer
  StepFloor(NetworkWork const& work, PlanView const& plan, int update_slots)
      : work_{work}, dense_bytes_{static_cast<double>((plan.elements - plan::header - plan::trailer) * sizeof(float))},
        slots_{static_cast<double>(update_slots)} {}

  /// Bytes that one replica moves in a step with an update.
  double bytes(double rows, double positions = 0) const {
    return dense_bytes_ * (4 + 2 * slots_) + work_.bytes(rows, positions);
  }
  /// Seconds of a step of so many rows on `replicas` replicas, which together have the speed of `machine`.
  double seconds(MachineSpeed const& machine, int replicas, double rows, double positions = 0) const {
    auto const moved = dense_bytes_ * (4 + 2 * slots_) * replicas + work_.bytes(rows, positions);
    return std::max(work_.products(rows, positions) / machine.products, moved / machine.bytes);
  }
  NetworkWork const& work() const { return work_; }

 private:
  NetworkWork work_;
  double dense_bytes_, slots_;
};

}  // namespace chorale
