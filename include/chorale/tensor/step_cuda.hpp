// SPDX-License-Identifier: Apache-2.0
//
// What a GPU finds out in a step, in memory; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/device/cuda_copies.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/kernels_cuda.hpp>
#include <chorale/tensor/launch_cuda.hpp>
#include <chorale/tensor/ops.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/runtime_cuda.hpp>
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
/// order   tell(); begin(), kernels and end() in the queue; a wait; first_bad() and sums(). One step at a time
class Kernels<Cuda>::Step {
 public:
  explicit Step(std::size_t rows)
      : rows_{rows}, there_{static_cast<Both*>(on_device_.take(sizeof(Both)))}, pinned_{sizeof(Both)},
        here_{new (pinned_.data()) Both{}} {
    losses_.take(rows * sizeof(float));
  }

  /// Targets on the device; copied in the queue. Of every step the same number, of the host or of any device.
  template <class T>
  T const* fetch(T const* targets, std::size_t n) { return targets_.fetch(targets, n); }

  /// Before the step: what kernels read that queue for many steps.
  Pass tell(Pass pass) {
    *here_         = {.now = pass.now};
    pass.on_device = &there_->now;
    return pass;
  }

  /// In the queue, from here to end().
  void begin() { cuda::copy(there_, here_, sizeof *here_); }
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
  /// Looks at values[begin, end).
  void find_bad(Span<float const> values, std::size_t begin, std::size_t end) {
    cuda::expect(cuda::launch::find_bad(begin, end - begin, values.data() + begin, &there_->bad.gradient,
                                        cuda::queue()), "find_bad");
  }
  void find_bad_loss(float const* loss) {
    cuda::expect(cuda::launch::find_bad(0, 1, loss, &there_->bad.loss, cuda::queue()), "find_bad");
  }
  /// What kernels behind it find where they were looked for.
  cuda::launch::FirstBad const* bad() const { return &there_->bad; }
  /// Keeps a header of gradients before it is reduced.
  void keep(float const* header) { cuda::copy(there_->sums.data(), header, sizeof there_->sums); }

  /// What of the host's is in the work of a step, and so in its record.
  struct Kind {
    bool checks;
    float loss_scale;
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
    if (!graph_ || recorded_ != kind) graph_.record(cuda::queue(), work);
    recorded_ = kind;
    graph_.launch(cuda::queue());
  }
  void end() { cuda::copy(&here_->bad, &there_->bad, sizeof(Both) - offsetof(Both, bad)); }

  /// After a wait: the first gradient that is infinite or NaN, if there is one.
  std::optional<std::size_t> first_bad() const {
    auto const first = here_->bad.gradient;
    return first == cuda::launch::no_bad ? std::nullopt : std::optional<std::size_t>{first};
  }
  Span<float const> sums() const { return here_->sums; }

 private:
  /// Of the device, and pinned memory of the host.
  struct Both {
    StepNumbers now;
    cuda::launch::FirstBad bad;
    std::array<float, plan::header> sums{};
  };

  std::size_t rows_;
  cuda::Room on_device_, losses_, targets_;
  Both* there_;
  CudaCopies::block pinned_;
  Both* here_;
  bool has_run_       = false;
  Kind recorded_      = {};
  cuda::Graph graph_;
};

static_assert(QueuesWork<Cuda>);

}  // namespace chorale

#endif
