// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/variable.hpp>

#include <cstddef>
#include <vector>

namespace chorale {

/// Gradients of one replica, accumulated over batches until the next update.
///
/// keeps   sums over rows, with their count, loss and metrics: as of one batch that has all of these rows
class GradientAccumulator {
 public:
  bool empty() const { return sums_.empty(); }

  /// Returns the batch with its rows numbered after those of the accumulated batches, as if all were one batch.
  template <class Batch>
  Batch append_to(Batch batch) const {
    batch.first_row += rows_;
    return batch;
  }

  template <class Batch>
  void add(Gradients const& gradients, Batch const& batch) {
    sums_.resize(gradients.values.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += gradients.values[i];
    rows_ += batch.global_rows != 0 ? batch.global_rows : batch.rows;
  }

  /// Adds the accumulated sums to these gradients, and clears them.
  void add_to(Gradients const& gradients) {
    for (std::size_t i = 0; i < sums_.size(); ++i) gradients.values[i] += sums_[i];
    sums_.clear();
    rows_ = 0;
  }

 private:
  std::vector<float> sums_;                                                // laid out as gradients
  std::size_t rows_ = 0;                                                   // of the whole batches
};

}  // namespace chorale
