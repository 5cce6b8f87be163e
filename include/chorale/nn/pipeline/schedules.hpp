// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/pipeline/entry.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace chorale {

namespace pipelines::detail {

/// Appends entries to one stage, a tick after the other: the order alone counts.
class OrderOf {
 public:
  constexpr OrderOf(Entries& all, int stage) : all_{&all}, stage_{stage} {}
  constexpr void operator()(Work work, int micro_batch, int chunk = 0) {
    all_->push_back({next_++, stage_, work, micro_batch, chunk});
  }

 private:
  Entries* all_;
  int stage_, next_ = 0;
};

}  // namespace pipelines::detail

/// All micro-batches forward, then all backward.
///
/// m       micro-batches of a step
/// cost    idle (p-1)/(m+p-1) of a step with p stages; activations of m micro-batches
/// source  Huang et al., "GPipe", NeurIPS 2019
template <int m> struct AllForwardAllBackward {
  static_assert(m >= 1, "chorale: AllForwardAllBackward<m> needs at least 1 micro-batch");
  static constexpr int micro_batches = m, chunks = 1;

  static constexpr pipelines::Entries entries(int stages) {
    auto all = pipelines::Entries{};
    for (int s = 0; s < stages; ++s) {
      auto next = pipelines::detail::OrderOf{all, s};
      for (int k = 0; k < m; ++k) next(pipelines::Work::forward, k);
      for (int k = 0; k < m; ++k) next(pipelines::Work::backward, k);
    }
    return all;
  }
};

/// Backward of a micro-batch as early as it can be: after a few forwards, each stage does one forward and one backward
/// in turn.
///
/// m       micro-batches of a step
/// cost    idle (p-1)/(m+p-1) of a step with p stages; activations of p - s micro-batches on stage s
/// source  Narayanan et al., "PipeDream", SOSP 2019, in its form that is flushed after each step
template <int m> struct OneForwardOneBackward {
  static_assert(m >= 1, "chorale: OneForwardOneBackward<m> needs at least 1 micro-batch");
  static constexpr int micro_batches = m, chunks = 1;

  static constexpr pipelines::Entries entries(int stages) {
    auto all = pipelines::Entries{};
    for (int s = 0; s < stages; ++s) {
      auto next        = pipelines::detail::OrderOf{all, s};
      auto const ahead = std::min(m, stages - s - 1);
      for (int k = 0; k < ahead; ++k) next(pipelines::Work::forward, k);
      for (int k = ahead; k < m; ++k) {
        next(pipelines::Work::forward, k);
        next(pipelines::Work::backward, k - ahead);
      }
      for (int k = m - ahead; k < m; ++k) next(pipelines::Work::backward, k);
    }
    return all;
  }
};

/// One forward and one backward in turn, where each stage computes several smaller sections of the network: a
/// micro-batch goes round all stages once for each chunk.
///
/// m       micro-batches of a step: a multiple of the stages, or fewer than these
/// n       chunks
/// cost    idle (p-1)/(n m+p-1) of a step with p stages; n times the messages
/// source  Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021
template <int m, int n> struct Interleaved {
  static_assert(m >= 1 && n >= 1, "chorale: Interleaved<m, chunks> needs at least 1 micro-batch and 1 chunk");
  static constexpr int micro_batches = m, chunks = n;

  static constexpr pipelines::Entries entries(int stages) {
    struct Turn {
      int micro_batch, chunk;
    };
    auto forward = std::vector<Turn>{}, backward = forward;
    for (int first = 0; first < m; first += stages) {
      auto const end = std::min(m, first + stages);
      for (int c = 0; c < n; ++c)
        for (int k = first; k < end; ++k) forward.push_back({k, c}), backward.push_back({k, n - 1 - c});
    }
    auto all = pipelines::Entries{};
    for (int s = 0; s < stages; ++s) {
      auto next        = pipelines::detail::OrderOf{all, s};
      auto const total = forward.size();
      auto const ahead = std::min(total, static_cast<std::size_t>(2 * (stages - s - 1) + (n - 1) * stages));
      auto const f = [&](std::size_t i) { next(pipelines::Work::forward, forward[i].micro_batch, forward[i].chunk); };
      auto const b = [&](std::size_t i) {
        next(pipelines::Work::backward, backward[i].micro_batch, backward[i].chunk);
      };
      for (std::size_t i = 0; i < ahead; ++i) f(i);
      for (std::size_t i = ahead; i < total; ++i) f(i), b(i - ahead);
      for (std::size_t i = total - ahead; i < total; ++i) b(i);
    }
    return all;
  }
};

/// One forward and one backward in turn, with backward by inputs and by weights apart: the stage before waits for the
/// first alone, and the second fills the time in which a stage would wait. Stage s does it s micro-batches later.
///
/// m       micro-batches of a step; with as many as stages, or more:
/// cost    idle p-1 ticks of a step with p stages, a third of OneForwardOneBackward; activations of p micro-batches
/// source  Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024: ZB-H1
template <int m> struct ZeroBubbleH1 {
  static_assert(m >= 1, "chorale: ZeroBubbleH1<m> needs at least 1 micro-batch");
  static constexpr int micro_batches = m, chunks = 1;

  static constexpr pipelines::Entries entries(int stages) {
    auto all = pipelines::Entries{};
    for (int s = 0; s < stages; ++s) {
      auto next        = pipelines::detail::OrderOf{all, s};
      auto const ahead = std::min(m, stages - s - 1);
      auto weights     = 0;  // the next one of backward by weights
      for (int k = 0; k < ahead; ++k) next(pipelines::Work::forward, k);
      for (int k = 0; k < m; ++k) {
        if (k + ahead < m) next(pipelines::Work::forward, k + ahead);
        next(pipelines::Work::by_inputs, k);
        if (k + ahead >= m || k >= s) next(pipelines::Work::by_weights, weights++);
      }
      while (weights < m) next(pipelines::Work::by_weights, weights++);
    }
    return all;
  }
};

/// Two chunks: a micro-batch goes through the first from stage 0 to the last, and through the second back to stage 0,
/// so that its backward begins where its forward has ended. Backward by inputs and by weights are apart.
///
///   stage 0     section 0    section 7
///   stage 1     section 1    section 6
///   stage 2     section 2    section 5
///   stage 3     section 3    section 4
///
/// m       micro-batches of a step; with as many as stages, or more:
/// cost    idle p-1 ticks, each of half a stage, of a step with p stages; activations of p micro-batches on each stage
/// source  Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024: ZB-V, here with the work that is
///         ready: backward by inputs before forward before backward by weights
template <int m> struct ZeroBubbleV {
  static_assert(m >= 1, "chorale: ZeroBubbleV<m> needs at least 1 micro-batch");
  static constexpr int micro_batches = m, chunks = 2;

  static constexpr int section(int stage, int chunk, int stages) { return chunk == 0 ? stage : 2 * stages - 1 - stage; }

  static constexpr pipelines::Entries entries(int stages) {
    auto all = pipelines::Entries{};
    auto at  = std::vector<Stage>{};
    for (int s = 0; s < stages; ++s) at.push_back({});
    // When section x has done forward of micro-batch k, and backward by its inputs; 0: not yet.
    auto forward_end = std::vector<int>{};
    for (int i = 0; i < 2 * stages * m; ++i) forward_end.push_back(0);
    auto inputs_end = forward_end;
    auto const of   = [](std::vector<int>& ends, int x, int k) -> int& {
      return ends[static_cast<std::size_t>(x * m + k)];
    };
    auto const is_over = [](int end, int tick) { return end != 0 && end <= tick; };
    auto const total   = static_cast<std::size_t>(6 * m * stages);
    for (int tick = 0; all.size() < total; ++tick)
      for (int s = 0; s < stages; ++s) {
        auto& mine             = at[static_cast<std::size_t>(s)];
        auto const can_forward = [&](int c, int k) {
          auto const x = section(s, c, stages);
          return k < m && (x == 0 || is_over(of(forward_end, x - 1, k), tick));
        };
        auto const can_by_inputs = [&](int c, int k) {
          auto const x = section(s, c, stages);
          return k < m && is_over(of(forward_end, x, k), tick) &&
                 (x == 2 * stages - 1 || is_over(of(inputs_end, x + 1, k), tick));
        };
        auto const begin = [&](pipelines::Work work, int k, int chunk) { all.push_back({tick, s, work, k, chunk}); };
        auto const first_backward = mine.by_inputs[1] <= mine.by_inputs[0] ? 1 : 0;  // the oldest micro-batch
        auto c                    = -1;
        for (auto const one : {first_backward, 1 - first_backward})
          if (c < 0 && can_by_inputs(one, mine.by_inputs[static_cast<std::size_t>(one)])) c = one;
        if (c >= 0) {
          auto const k = mine.by_inputs[static_cast<std::size_t>(c)]++;
          begin(pipelines::Work::by_inputs, k, c);
          of(inputs_end, section(s, c, stages), k) = tick + 1;
          mine.waiting.push_back({0, s, pipelines::Work::by_weights, k, c});
          continue;
        }
        if (mine.live < 2 * stages)
          for (auto const one : {1, 0})
            if (c < 0 && can_forward(one, mine.forward[static_cast<std::size_t>(one)])) c = one;
        if (c >= 0) {
          auto const k = mine.forward[static_cast<std::size_t>(c)]++;
          begin(pipelines::Work::forward, k, c);
          of(forward_end, section(s, c, stages), k) = tick + 1;
          ++mine.live;
        } else if (mine.weights < mine.waiting.size()) {
          auto const& next = mine.waiting[mine.weights++];
          begin(pipelines::Work::by_weights, next.micro_batch, next.chunk);
          --mine.live;
        }
      }
    return all;
  }

 private:
  /// What a stage has done.
  struct Stage {
    std::array<int, 2> forward{}, by_inputs{};  // micro-batches of each chunk
    pipelines::Entries waiting{};               // for backward by weights
    std::size_t weights = 0;                    // of these, done
    int live            = 0;                    // activations of chunks
  };
};

}  // namespace chorale
