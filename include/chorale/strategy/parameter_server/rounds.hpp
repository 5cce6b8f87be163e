// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/strategy/consistency.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/shard.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// What one push brought, once it is there in full.
struct Contribution {
  Request request;
  Buffer values, indices;
  Span<float const> placed;                                                // in the worker's memory, in place of values
  RowGradients rows;                                                       // of a table, when it is one

  bool is_dense() const { return request.brings_values() && !of_rows(request.call); }
  bool is_rows() const { return request.brings_values() && of_rows(request.call); }
};

/// Which contributions are summed in which round, and who waits for what. See Consistency.
///
///   worker 0   | 0 | 1 | 2 |                  clock 2 of worker 0 waits for that of worker 1;
///   worker 1   | 0 | 1 |                      with staleness 1, worker 0 may begin clock 3
///                      ^ now() == 2
template <Consistency C>
class Rounds {
 public:
  explicit Rounds(int workers) : next_(size_of(workers)), serves_(size_of(workers), true) {}

  std::uint64_t now() const { return now_; }                               // rounds that were closed

  /// Of this worker's next push.
  ///
  /// seen    now() when the values came that it is computed from
  std::uint64_t clock_of(Rank worker, std::uint64_t seen) const { return std::max(next_[size_of(worker)], seen); }

  /// May this worker begin its next clock, so push, or have the values for it?
  bool may_begin(std::uint64_t clock) const { return clock <= now_ + static_cast<std::uint64_t>(C::staleness); }
  bool may_pull(Rank worker) const { return may_begin(next_[size_of(worker)]); }

  bool is_late(std::uint64_t clock) const { return clock < now_; }
  void drop(Rank worker, std::uint64_t clock) { next_[size_of(worker)] = clock + 1; }

  /// This worker brings nothing for rounds before that one.
  void skip_to(Rank worker, std::uint64_t clock) {
    next_[size_of(worker)] = std::max(next_[size_of(worker)], clock);
  }

  /// Only when it may begin and is not late.
  void add(Rank worker, std::uint64_t clock, Contribution&& contribution) {
    next_[size_of(worker)] = clock + 1;
    while (open_.size() <= clock - now_) open_.emplace_back();
    auto& round      = open_[clock - now_];
    auto const place = std::ranges::upper_bound(round, worker, {}, [](auto const& c) { return c.request.worker; });
    round.insert(place, std::move(contribution));
  }

  /// This worker brings nothing more.
  void end(Rank worker) { serves_[size_of(worker)] = false; }

  /// Closes the next round when it is complete, and gives what it sums, in the order of workers.
  bool close(std::vector<Contribution>& contributions) {
    auto const came = open_.empty() ? std::size_t{0} : open_.front().size();
    auto missing    = std::size_t{0};                                      // workers that may still bring something
    auto ahead      = false;                                               // or wait for the next round
    for (std::size_t w = 0; w < next_.size(); ++w) {
      missing += serves_[w] && next_[w] <= now_ ? 1 : 0;
      ahead |= serves_[w] && next_[w] > now_;
    }
    if (open_.empty()) {
      if (missing != 0 || !ahead) return false;
      open_.emplace_back();                                                // who was to bring something is lost
    }
    auto const enough = next_.size() - static_cast<std::size_t>(C::spares);
    if (came < std::min(enough, came + missing)) return false;
    contributions = std::move(open_.front());
    open_.pop_front();
    ++now_;
    return true;
  }

 private:
  static std::size_t size_of(int n) { return static_cast<std::size_t>(n); }

  std::uint64_t now_ = 0;
  std::vector<std::uint64_t> next_;                                        // [worker], clock of its next push
  std::vector<bool> serves_;                                               // [worker]
  std::deque<std::vector<Contribution>> open_;                             // rounds now(), now() + 1, ..
};

/// What workers reported about an epoch, and its sum once every worker that serves has.
class Reports {
 public:
  explicit Reports(int workers) : workers_{static_cast<std::size_t>(workers)} {}

  void add(Request const& request) {
    auto& epoch = of(request.epoch);
    auto const w = static_cast<std::size_t>(request.worker);
    epoch.sums[w]     = request.sums;
    epoch.reported[w] = std::byte{1};
  }

  template <class Serves>
  bool complete(int epoch, Serves serves) {
    auto const& reported = of(epoch).reported;
    for (std::size_t w = 0; w < workers_; ++w)
      if (reported[w] == std::byte{0} && serves(static_cast<Rank>(w))) return false;
    return true;
  }

  /// Added up in the order of workers.
  std::array<double, parameter_sums> sum(int epoch) {
    auto total = std::array<double, parameter_sums>{};
    for (auto const& sums : of(epoch).sums)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += sums[i];
    return total;
  }

  /// A byte for each worker, 1 when it has reported.
  ConstBytes reported(int epoch) { return of(epoch).reported; }

  /// What each worker has reported, zeros where it has not.
  ConstBytes each(int epoch) {
    return std::as_bytes(Span<std::array<double, parameter_sums> const>{of(epoch).sums});
  }

 private:
  static constexpr std::size_t kept = 64;                                  // epochs: the newest

  struct Epoch {
    int number;
    std::vector<std::array<double, parameter_sums>> sums;                  // [worker]
    std::vector<std::byte> reported;                                       // [worker]
  };

  Epoch& of(int number) {
    auto const found = std::ranges::find(epochs_, number, &Epoch::number);
    if (found != epochs_.end()) return *found;
    if (epochs_.size() == kept) epochs_.pop_front();
    return epochs_.emplace_back(
        Epoch{number, std::vector<std::array<double, parameter_sums>>(workers_), std::vector<std::byte>(workers_)});
  }

  std::size_t workers_;
  std::deque<Epoch> epochs_;
};

}  // namespace chorale::parameter_server
