// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/strategy/consistency.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/row_sums.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// Content of one push that has arrived in full.
struct Contribution {
  Request request;
  Buffer values, indices, words;     // words: rows of tables, beside values
  Span<float const> placed;          // in the worker's memory, instead of values
  RowGradients rows;                 // of a table, for a push of rows
  std::vector<RowGradients> tables;  // of all tables, beside values; in `words`

  bool is_dense() const { return request.brings_values() && !of_rows(request.call); }
  bool is_rows() const { return request.brings_values() && of_rows(request.call); }
};

/// Rounds of a parameter server: which pushes each round sums, and which workers wait. See Consistency.
///
///   worker 0   | 0 | 1 | 2 |                  clock 2 of worker 0 waits for clock 2 of worker 1;
///   worker 1   | 0 | 1 |                      with staleness 1, worker 0 may begin clock 3
///                      ^ now() == 2
template <Consistency C> class Rounds {
 public:
  explicit Rounds(int workers)
      : next_(size_of(workers)), serves_(size_of(workers), true), reported_(size_of(workers), -1) {}

  std::uint64_t now() const { return now_; }  // number of closed rounds

  /// Clock of this worker's next push.
  ///
  /// seen    now() when the values were pulled from which the push is computed
  std::uint64_t clock_of(Rank worker, std::uint64_t seen) const { return std::max(next_[size_of(worker)], seen); }

  /// True if a worker may begin this clock, i.e. push; may_pull(): if this worker may have the values for its next one.
  bool may_begin(std::uint64_t clock) const { return clock <= now_ + static_cast<std::uint64_t>(C::staleness); }
  bool may_pull(Rank worker) const { return may_begin(next_[size_of(worker)]); }

  bool is_late(std::uint64_t clock) const { return clock < now_; }
  void drop(Rank worker, std::uint64_t clock) { next_[size_of(worker)] = clock + 1; }

  /// Records that this worker pushes nothing for rounds before `clock`.
  void skip_to(Rank worker, std::uint64_t clock) { next_[size_of(worker)] = std::max(next_[size_of(worker)], clock); }

  /// Adds a push to its round. Only if it may begin and is not late.
  void add(Rank worker, std::uint64_t clock, Contribution&& contribution) {
    next_[size_of(worker)] = clock + 1;
    while (open_.size() <= clock - now_) open_.emplace_back();
    auto& round      = open_[clock - now_];
    auto const place = std::ranges::upper_bound(round, worker, {}, [](auto const& c) { return c.request.worker; });
    round.insert(place, std::move(contribution));
  }

  /// Records that this worker has reported `epoch`: it pushes nothing before all others have reported it, too.
  void report(Rank worker, int epoch) { reported_[size_of(worker)] = epoch; }

  /// Records that this worker pushes nothing more.
  void end(Rank worker) { serves_[size_of(worker)] = false; }

  /// If the next round is complete, closes it and returns true, with its pushes in the order of workers.
  bool close(std::vector<Contribution>& contributions) {
    auto const came = open_.empty() ? std::size_t{0} : open_.front().size();
    auto missing    = std::size_t{0};                   // workers that may still push for it
    auto ahead      = false;                            // a worker waits for the next round
    auto least      = std::numeric_limits<int>::max();  // epoch that each worker has reported
    for (std::size_t w = 0; w < next_.size(); ++w)
      if (serves_[w]) least = std::min(least, reported_[w]);
    for (std::size_t w = 0; w < next_.size(); ++w) {
      missing += serves_[w] && next_[w] <= now_ && reported_[w] != least + 1 ? 1 : 0;
      ahead |= serves_[w] && next_[w] > now_;
    }
    if (open_.empty()) {
      if (missing != 0 || !ahead) return false;
      open_.emplace_back();  // workers that were to push for it are lost
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
  std::vector<std::uint64_t> next_;             // [worker], clock of its next push
  std::vector<bool> serves_;                    // [worker]
  std::vector<int> reported_;                   // [worker], the last epoch; -1: none
  std::deque<std::vector<Contribution>> open_;  // rounds now(), now() + 1, ..
};

/// Reports of the workers about recent epochs, and their sums once every live worker has reported.
class Reports {
 public:
  explicit Reports(int workers) : workers_{static_cast<std::size_t>(workers)} {}

  void add(Request const& request) {
    auto& epoch       = of(request.epoch);
    auto const w      = static_cast<std::size_t>(request.worker);
    epoch.sums[w]     = request.sums;
    epoch.reported[w] = std::byte{1};
  }

  template <class Serves> bool complete(int epoch, Serves serves) {
    auto const& reported = of(epoch).reported;
    for (std::size_t w = 0; w < workers_; ++w)
      if (reported[w] == std::byte{0} && serves(static_cast<Rank>(w))) return false;
    return true;
  }

  /// Sum of the reports of an epoch, added up in the order of workers.
  std::array<double, parameter_sums> sum(int epoch) {
    auto total = std::array<double, parameter_sums>{};
    for (auto const& sums : of(epoch).sums)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += sums[i];
    return total;
  }

  /// A byte for each worker: 1 if it has reported.
  ConstBytes reported(int epoch) { return of(epoch).reported; }

  /// Report of each worker; zeros if it has not reported.
  ConstBytes each(int epoch) { return std::as_bytes(Span<std::array<double, parameter_sums> const>{of(epoch).sums}); }

 private:
  static constexpr std::size_t kept = 64;  // epochs: the newest

  struct Epoch {
    int number;
    std::vector<std::array<double, parameter_sums>> sums;  // [worker]
    std::vector<std::byte> reported;                       // [worker]
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
