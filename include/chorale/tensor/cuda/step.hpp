// SPDX-License-Identifier: Apache-2.0
//
// Memory for the numbers and the results of a step on a GPU; empty where the compiler does not find cuBLAS and cuDNN.
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
#include <vector>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// Memory that steps of one number of rows need besides activations, at addresses that never change. The host writes
/// the numbers of a step before it queues the step, and reads the results after it has waited.
///
/// order   tell(); begin(), kernels and end() in the queue; a wait; first_bad() and sums(). One step at a time; two, if
///         turn() is called before each
class Kernels<Cuda>::Step {
 public:
  explicit Step(std::size_t rows)
      : rows_{rows}, there_{static_cast<Both*>(on_device_.take(sizeof(Both)))}, pinned_{turns * sizeof(Both)} {
    for (std::size_t i = 0; i < turns; ++i) turns_[i].here = new (pinned_.data() + i * sizeof(Both)) Both{};
    losses_.take(rows * sizeof(float));
  }

  /// Switches to the other of two host buffers, so that the next step's parameters and results do not overwrite those
  /// of a step still in flight.
  ///
  /// returns   number of that buffer, for first_bad(), sums() and wait_ended()
  std::size_t turn() { return now_ = (now_ + 1) % turns; }

  /// Copies targets to the device, in the queue. Every step has equally many, of the host or of any device.
  ///
  /// term    number of the loss or metric that reads them
  template <class T> T const* fetch(T const* targets, std::size_t n, std::size_t term = 0) {
    if (targets_.size() <= term) targets_.resize(term + 1);
    return targets_[term].fetch(targets, n);
  }

  /// Writes the numbers of the next step to the host buffer. Returns the pass with the address where kernels read them.
  Pass tell(Pass pass) {
    *mine().here   = {.now = pass.now};
    pass.on_device = &there_->now;
    return pass;
  }

  /// Queues a copy of the step's numbers to the device, with empty results. All from here to end() is queued.
  void begin() { cuda::copy(there_, mine().here, sizeof(Both)); }
  /// Queues the copy of begin(), but keeps bad values that an earlier step has found.
  void begin_behind() { cuda::copy(there_, mine().here, offsetof(Both, bad)); }
  void forget_bad() {
    cuda::expect(cudaMemsetAsync(&there_->bad, 0xFF, sizeof there_->bad, cuda::queue()), "cudaMemsetAsync");
  }
  /// Queues begin(), then rows in the header of the gradients, and the trailer of one replica.
  void begin(Span<float> gradients) {
    begin();
    cuda::expect(cuda::launch::begin_gradients(gradients.data(), gradients.last(plan::trailer).data(),
                                               static_cast<float>(rows_), cuda::queue()),
                 "begin_gradients");
  }
  /// Destination of a sum over rows; `sum` is memory of the device. The scratch is for one sum after the other.
  SumOfRows sum_to(float* sum) { return {static_cast<float*>(losses_.take(rows_ * sizeof(float))), sum}; }
  /// Device memory for the sums of a step without gradients, or of a host that runs ahead.
  Span<float> own_sums() { return there_->sums; }
  /// Queues a check of values[begin, end) for infinite or NaN, and of the loss unless it is null; all on the device.
  void find_bad(Span<float const> values, std::size_t begin, std::size_t end, float const* loss = nullptr) {
    cuda::expect(cuda::launch::find_bad(begin, end - begin, values.data() + begin, loss, &there_->bad, cuda::queue()),
                 "find_bad");
  }
  /// Address where kernels queued after find_bad() read its result.
  cuda::launch::FirstBad const* bad() const { return &there_->bad; }
  /// Queues a copy of the header of gradients to sums(), before the header is reduced.
  void keep(float const* header) { cuda::copy(there_->sums.data(), header, sizeof there_->sums); }

  /// The choices of the host that the work of a step depends on, and so its recorded graph.
  struct Kind {
    bool checks;
    float loss_scale;
    bool ahead                         = false;  // the host runs ahead
    bool bad_stays                     = false;
    bool operator==(Kind const&) const = default;
  };

  /// Calls work(), which queues all from begin() to end(); or, from the second time on, replays it.
  ///
  /// kind    of the work; work of another kind is recorded again
  template <class Work> void replay(Kind kind, Work&& work) {
    if (!has_run_) {
      has_run_ = true;
      return work();
    }
    auto& turn = mine();
    if (!turn.graph || turn.recorded != kind) turn.graph.record(cuda::queue(), work);
    turn.recorded = kind;
    turn.graph.launch(cuda::queue());
  }
  /// Number of kernels and copies in the graph that is replayed; 0 where there is none.
  std::size_t nodes() const { return turns_[now_].graph ? turns_[now_].graph.nodes() : 0; }

  void end() { cuda::copy(&mine().here->sums, &there_->sums, sizeof(Both) - offsetof(Both, sums)); }

  /// Index of the first gradient that is infinite or NaN, if there is one; to be called after a wait.
  std::optional<std::size_t> first_bad() const { return first_bad(now_); }
  std::optional<std::size_t> first_bad(std::size_t turn) const {
    auto const first = turns_[turn].here->bad.gradient;
    return first == cuda::launch::no_bad ? std::nullopt : std::optional<std::size_t>{first};
  }
  Span<float const> sums() const { return sums(now_); }
  Span<float const> sums(std::size_t turn) const { return turns_[turn].here->sums; }

  // For a host that runs ahead.

  void mark_copied() { copied_.record(cuda::queue()); }  // the batch is on the device by then
  void wait_copied() const { copied_.wait(); }
  void mark_ended() { mine().ended.record(cuda::queue()); }
  void wait_ended(std::size_t turn) const { turns_[turn].ended.wait(); }

 private:
  /// Numbers and results of a step, both in memory of the device and in pinned memory of the host.
  struct Both {
    StepNumbers now;
    std::array<float, plan::header> sums{};
    cuda::launch::FirstBad bad;  // last: see begin_behind()
  };

  struct Turn {
    Both* here    = nullptr;
    Kind recorded = {};
    cuda::Graph graph;  // which has the address of `here`
    cuda::Event ended;
  };
  static constexpr std::size_t turns = 2;

  Turn& mine() { return turns_[now_]; }

  std::size_t rows_;
  cuda::Room on_device_, losses_;
  std::vector<cuda::Room> targets_;
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
