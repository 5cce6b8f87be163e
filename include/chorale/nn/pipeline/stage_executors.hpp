// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section_executor.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// The executors of one stage of a pipeline: of each chunk, one for each micro-batch that is under way in it and for
/// each number of rows. They are kept for the steps that follow.
template <class D> class StageExecutors {
 public:
  /// An executor with the messages that use its memory.
  struct Slot {
    template <class... Args> explicit Slot(Args&&... args) : executor{std::forward<Args>(args)...} {}

    SectionExecutor<D> executor;
    int micro_batch = -1;                            // under way; -1: none
    std::vector<std::size_t> sent, gradients, ties;  // messages
    std::vector<std::vector<float>> carried;         // of each tie: what comes, and is sent on
  };

  /// Bytes that the executors of a step take, once there are as many as its schedule has under way.
  ///
  /// bytes_of  called as bytes_of(chunk, rows): of one executor
  template <class F>
  static std::size_t planned_bytes(pipelines::StageSchedule const& schedule, std::vector<Range> const& rows,
                                   F&& bytes_of) {
    struct One {
      std::size_t rows;
      int micro_batch;  // -1: free
    };
    auto pools = std::vector<std::vector<One>>(schedule.sections.size());
    auto sum   = std::size_t{0};
    for (auto const& e : schedule.entries) {
      auto& pool   = pools[at(e.chunk)];
      auto const n = rows[at(e.micro_batch)].size();
      if (n == 0 || e.work == pipelines::Work::by_inputs) continue;
      auto const wanted = e.work == pipelines::Work::forward ? One{n, -1} : One{n, e.micro_batch};
      auto const found  = std::ranges::find_if(
          pool, [&](One const& one) { return one.rows == wanted.rows && one.micro_batch == wanted.micro_batch; });
      if (e.work != pipelines::Work::forward) found->micro_batch = -1;
      else if (found != pool.end()) found->micro_batch = e.micro_batch;
      else pool.push_back({n, e.micro_batch}), sum += bytes_of(at(e.chunk), static_cast<int>(n));
    }
    return sum;
  }

  StageExecutors() = default;
  StageExecutors(int stage, std::size_t chunks) : stage_{stage}, pools_(chunks) {}

  /// Takes a free executor of a chunk for so many rows, for micro-batch k.
  ///
  /// make      makes another: make() returns std::unique_ptr<Slot>
  template <class Make> Slot& take(std::size_t chunk, int rows, int k, pipelines::Messages& messages, Make&& make) {
    for (auto const& slot : pools_[chunk])
      if (slot->micro_batch < 0 && slot->executor.rows() == rows) return begin(*slot, k, messages);
    pools_[chunk].push_back(make());
    return begin(*pools_[chunk].back(), k, messages);
  }
  /// The executor in which a micro-batch is under way.
  Slot& of(std::size_t chunk, int k) {
    for (auto const& slot : pools_[chunk])
      if (slot->micro_batch == k) return *slot;
    throw BadArgument{"micro-batch " + std::to_string(k) + " is not under way on stage " + std::to_string(stage_) +
                          ", of " + std::to_string(pools_[chunk].size()) + ".",
                      "a schedule that a Timetable has checked."};
  }

  /// All are free again.
  void free_all() {
    for (auto const& pool : pools_)
      for (auto const& slot : pool) slot->micro_batch = -1;
  }
  /// All are free again, and what a step that failed has sent is forgotten.
  void forget_all() {
    free_all();
    for (auto const& pool : pools_)
      for (auto const& slot : pool) slot->sent.clear();
  }

  /// Executors of a chunk, of all numbers of rows.
  std::size_t count(std::size_t chunk) const { return pools_[chunk].size(); }
  std::size_t bytes() const {
    auto sum = std::size_t{0};
    for (auto const& pool : pools_)
      for (auto const& slot : pool) sum += slot->executor.bytes();
    return sum;
  }

 private:
  Slot& begin(Slot& slot, int k, pipelines::Messages& messages) {
    for (auto const message : slot.sent) messages.wait(message);  // they read memory that is now written
    slot.sent.clear(), slot.gradients.clear(), slot.ties.clear();
    slot.micro_batch = k;
    return slot;
  }

  int stage_ = 0;
  std::vector<std::vector<std::unique_ptr<Slot>>> pools_;  // of each chunk
};

}  // namespace chorale::nn::graph
