// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/strategy/live.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace chorale {

/// The batches of fit, epoch after epoch. An epoch is a pass over the data, or a number of steps, which begin where the
/// last epoch stopped and continue pass after pass.
template <class Live, class Data>
class EpochBatches {
  using BatchShares = decltype(std::declval<Live const&>().distribute(std::declval<Data const&>(), 0));

 public:
  using element = typename Data::element;

  /// steps   of an epoch; 0: an epoch is a pass
  EpochBatches(Live const& live, Data const& data, std::size_t steps, int first_epoch)
      : live_{&live}, data_{&data}, steps_{steps}, pass_{first_epoch} {}

  void begin(int epoch) {
    taken_ = 0;
    if (steps_ == 0) pass_ = epoch;
    if (steps_ == 0 || !shares_) begin_pass();
  }

  /// Moves to a saved position: after `steps` steps of an epoch, and after `batch` batches of a pass.
  void resume(std::size_t steps, int pass, std::size_t batch) {
    taken_ = steps;
    pass_  = pass;
    begin_pass();
    for (; batch_ < batch && shares_->next() != nullptr; ++batch_) {}
  }

  int         pass() const { return pass_; }
  std::size_t batch() const { return batch_; }                             // of the pass, the next one
  std::size_t taken() const { return taken_; }                             // of this epoch

  /// The next batch of this epoch in shares, or null at its end; valid until the next call.
  auto* next() {
    auto* share = steps_ != 0 && taken_ == steps_ ? nullptr : shares_->next();
    if (share == nullptr && taken_ < steps_) {
      ++pass_;
      begin_pass();
      share = shares_->next();                                             // null again: the data is empty
    }
    taken_ += share != nullptr ? 1 : 0;
    batch_ += share != nullptr ? 1 : 0;
    return share;
  }

 private:
  void begin_pass() {
    shares_.emplace(live_->distribute(*data_, pass_));
    batch_ = 0;
  }

  Live const* live_;
  Data const* data_;
  std::size_t steps_, taken_ = 0;
  int pass_;
  std::size_t batch_ = 0;
  std::optional<BatchShares> shares_;
};

}  // namespace chorale
