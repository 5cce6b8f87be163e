// SPDX-License-Identifier: Apache-2.0
//
// What a GPU finds out in a step, in memory; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/device/cuda_copies.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/cuda/kernels.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <array>
#include <cstddef>
#include <new>
#include <optional>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// What steps of one number of rows need besides activations, at addresses that never change. They are queued without
/// the host, which tells a step its numbers before, and reads what was found when it has waited.
///
/// order   tell(); begin(), kernels and end() in the queue; a wait; first_bad() and sums(). One step at a time; where
///         turn() comes before each, two
class Kernels<Cuda>::Step {
 public:
  explicit Step(std::size_t rows)
      : rows_{rows}, there_{static_cast<Both*>(on_device_.take(sizeof(Both)))}, pinned_{turns * sizeof(Both)} {
    for (std::size_t i = 0; i < turns; ++i) turns_[i].here = new (pinned_.data() + i * sizeof(Both)) Both{};
    losses_.take(rows * sizeof(float));
  }

  /// What the host tells the next step, and is told by it, has another place than that of the one before, which may be
  /// under way.
  ///
  /// returns   its number, for what is found out in it
  std::size_t turn() { return now_ = (now_ + 1) % turns; }

  /// Targets on the device; copied in the queue. Of every step the same number, of the host or of any device.
  template <class T>
  T const* fetch(T const* targets, std::size_t n) { return targets_.fetch(targets, n); }

  /// Before the step: what kernels read that queue for many steps.
  Pass tell(Pass pass) {
    *mine().here   = {.now = pass.now};
    pass.on_device = &there_->now;
    return pass;
  }

  /// In the queue, from here to end().
  void begin() { cuda::copy(there_, mine().here, sizeof(Both)); }
  /// The same, and what a step before found to be bad stays so.
  void begin_behind() { cuda::copy(there_, mine().here, offsetof(Both, bad)); }
  void forget_bad() {
    cuda::expect(cudaMemsetAsync(&there_->bad, 0xFF, sizeof there_->bad, cuda::queue()), "cudaMemsetAsync");
  }
  /// Rows in the header of gradients, and an empty trailer.
  void begin(Span<float> gradients) {
    begin();
    cuda::expect(cuda::launch::begin_gradients(gradients.data(), gradients.last(plan::trailer).data(),
                                               static_cast<float>(rows_), cuda::queue()), "begin_gradients");
  }
  /// `sum`: of the device; one sum after the other.
  SumOfRows sum_to(float* sum) { return {static_cast<float*>(losses_.take(rows_ * sizeof(float))), sum}; }
  /// Where the sums of a step go that has no gradients.
  Span<float> own_sums() { return there_->sums; }
  /// Looks at values[begin, end), and at the loss, of the device, if there is one.
  void find_bad(Span<float const> values, std::size_t begin, std::size_t end, float const* loss = nullptr) {
    cuda::expect(cuda::launch::find_bad(begin, end - begin, values.data() + begin, loss, &there_->bad, cuda::queue()),
                 "find_bad");
  }
  /// What kernels behind it find where they were looked for.
  cuda::launch::FirstBad const* bad() const { return &there_->bad; }
  /// Keeps a header of gradients before it is reduced.
  void keep(float const* header) { cuda::copy(there_->sums.data(), header, sizeof there_->sums); }

  /// What of the host's is in the work of a step, and so in its record.
  struct Kind {
    bool checks;
    float loss_scale;
    bool ahead = false;                                                    // of the host
    bool bad_stays = false;
    bool operator==(Kind const&) const = default;
  };

  /// Calls work(), which queues all from begin() to end(); or replays it, from the second time on.
  ///
  /// kind    of the work: other work is recorded anew
  template <class Work>
  void replay(Kind kind, Work&& work) {
    if (!has_run_) {
      has_run_ = true;
      return work();
    }
    auto& turn = mine();
    if (!turn.graph || turn.recorded != kind) turn.graph.record(cuda::queue(), work);
    turn.recorded = kind;
    turn.graph.launch(cuda::queue());
  }
  /// Kernels and copies in what is replayed; 0 where nothing is.
  std::size_t nodes() const { return turns_[now_].graph ? turns_[now_].graph.nodes() : 0; }

  void end() { cuda::copy(&mine().here->sums, &there_->sums, sizeof(Both) - offsetof(Both, sums)); }

  /// After a wait: the first gradient that is infinite or NaN, if there is one.
  std::optional<std::size_t> first_bad() const { return first_bad(now_); }
  std::optional<std::size_t> first_bad(std::size_t turn) const {
    auto const first = turns_[turn].here->bad.gradient;
    return first == cuda::launch::no_bad ? std::nullopt : std::optional<std::size_t>{first};
  }
  Span<float const> sums() const { return sums(now_); }
  Span<float const> sums(std::size_t turn) const { return turns_[turn].here->sums; }

  // For a host that runs ahead.

  void mark_copied() { copied_.record(cuda::queue()); }                    // the batch is on the device by then
  void wait_copied() const { copied_.wait(); }
  void mark_ended() { mine().ended.record(cuda::queue()); }
  void wait_ended(std::size_t turn) const { turns_[turn].ended.wait(); }

 private:
  /// Of the device, and pinned memory of the host.
  struct Both {
    StepNumbers now;
    std::array<float, plan::header> sums{};
    cuda::launch::FirstBad bad;                                            // last: see begin_behind()
  };

  struct Turn {
    Both* here    = nullptr;
    Kind recorded = {};
    cuda::Graph graph;                                                     // which has the address of `here`
    cuda::Event ended;
  };
  static constexpr std::size_t turns = 2;

  Turn& mine() { return turns_[now_]; }

  std::size_t rows_;
  cuda::Room on_device_, losses_, targets_;
  Both* there_;
  CudaCopies::block pinned_;
  std::array<Turn, turns> turns_;
  std::size_t now_ = 0;
  cuda::Event copied_;
  bool has_run_ = false;
};

static_assert(QueuesWork<Cuda>);

}  // namespace chorale

#endif
