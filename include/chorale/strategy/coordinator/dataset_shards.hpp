// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/strategy/coordinator/connection.hpp>
#include <chorale/strategy/coordinator/messages.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace chorale::detail {

/// Shares of the datasets, one per worker at the start: which worker reads each share, and how far it has been read.
///
/// keeps   an element is taken once a closure that read it has replied, whether it failed or not
class DatasetShards {
 public:
  explicit DatasetShards(int workers) : runs_(static_cast<std::size_t>(workers)) {
    for (int w = 0; w < workers; ++w) owner_.push_back(w);
  }

  /// Adds a dataset, and returns its index.
  std::size_t add_dataset(std::uint64_t id, std::string const& name) {
    for (auto const& other : data_)
      CHORALE_EXPECTS(other[0].dataset != id, "the dataset \"" + name + "\" was created before");
    data_.emplace_back(owner_.size(), DataPosition{.dataset = id});
    return data_.size() - 1;
  }
  std::size_t datasets() const { return data_.size(); }

  /// Sets where a closure reads on this worker: of the shares that the worker owns, in the one that was read least.
  void begin(ClosureTask& task, int worker) {
    auto share = std::size_t{0};
    auto least = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t s = 0; s < owner_.size(); ++s)
      if (owner_[s] == worker && runs_[s] < least) {
        share = s;
        least = runs_[s];
      }
    task.request.share  = static_cast<std::int32_t>(share);
    task.request.shares = static_cast<std::int32_t>(owner_.size());
    for (std::size_t i = 0; i < task.data.size(); ++i) task.request.data[i] = data_[task.data[i]][share];
    if (!task.data.empty()) ++runs_[share];
  }

  void taken(ClosureTask const& task, std::array<DataPosition, most_datasets> const& to) {
    for (std::size_t i = 0; i < task.data.size(); ++i) data_[task.data[i]][share_of(task)] = to[i];
  }

  /// Undoes begin() for a closure whose worker was lost.
  void lost(ClosureTask const& task) {
    if (!task.data.empty()) --runs_[share_of(task)];
  }

  /// Gives the shares of a worker to other workers in turn.
  ///
  /// lives   lives(worker) is true for live workers; if there is none, nothing changes
  template <class Lives>
  void take_over(int worker, Lives&& lives) {
    auto others = std::vector<int>{};
    for (int w = 0; w < static_cast<int>(owner_.size()); ++w)
      if (lives(w)) others.push_back(w);
    if (others.empty()) return;
    for (auto next = std::size_t{0}; auto& owner : owner_)
      if (owner == worker) owner = others[next++ % others.size()];
  }

 private:
  static std::size_t share_of(ClosureTask const& task) { return static_cast<std::size_t>(task.request.share); }

  std::vector<int> owner_;                                                 // [share]
  std::vector<std::uint64_t> runs_;                                        // [share]: closures that read it
  std::vector<std::vector<DataPosition>> data_;                            // [dataset][share]: the next element
};

}  // namespace chorale::detail
