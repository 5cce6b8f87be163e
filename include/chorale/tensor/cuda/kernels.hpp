// SPDX-License-Identifier: Apache-2.0
//
// The kernels of Cuda. Those for layers have separate headers, beside this one; losses, checks, update rules and
// dropout are here. Empty where the compiler does not find CUDA.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/cuda/sequences.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>

#include <cstddef>
#include <vector>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale::cuda {

/// Counterpart of cpu::Loops on the calling thread's device, in its queue. All memory is of the device.
///
/// cost    all but synchronize, finite and squared_norm return at once
struct Loops {
  /// Returns when the work that this thread has queued is done: the host may read its results.
  static void synchronize() { expect(cudaStreamSynchronize(queue()), "cudaStreamSynchronize"); }

  /// y = x, n numbers
  static void copy(std::size_t n, float const* x, float* y) { cuda::copy(y, x, n * sizeof(float)); }
  /// next = how.keep · x + how.take · towards / rows, and towards = 0; n numbers
  static void move(std::size_t n, float const* x, float* towards, float rows, Movement how, float* next) {
    expect(launch::move(n, x, towards, rows, how, next, bad(), queue()), "move");
  }
  /// Makes the update rules and moving averages that this thread queues while the object lives keep all values, where
  /// the device has found before that the step is bad.
  ///
  /// bad    memory of the device; null: not checked
  class Unless {
   public:
    explicit Unless(launch::FirstBad const* bad) { Loops::bad() = bad; }
    ~Unless() { Loops::bad() = nullptr; }
    Unless(Unless const&)            = delete;
    Unless& operator=(Unless const&) = delete;
  };
  /// Memory that only kernels read. A copy of the object has its own memory, which begins empty.
  class Scratch {
   public:
    Scratch() = default;
    Scratch(Scratch const&) {}
    Scratch& operator=(Scratch const&) { return *this; }

    /// Returns memory for n numbers: the same memory unless n is larger than before.
    float* take(std::size_t n) { return static_cast<float*>(room_.take(n * sizeof(float))); }

   private:
    Room room_;
  };

  /// x *= factor, n numbers
  static void multiply(std::size_t n, float* x, float factor) {
    expect(launch::multiply(n, x, factor, queue()), "multiply");
  }

  static void sparse_cross_entropy(std::size_t rows, std::size_t classes, float const* logits, int const* labels,
                                   float* d_logits, SumOfRows to) {
    expect(launch::sparse_cross_entropy(rows, classes, logits, labels, d_logits, to, queue()), "sparse_cross_entropy");
  }
  static void cross_entropy(std::size_t rows, std::size_t classes, float const* logits, float const* targets,
                            float* d_logits, SumOfRows to) {
    expect(launch::cross_entropy(rows, classes, logits, targets, d_logits, to, queue()), "cross_entropy");
  }
  static void squared_error(std::size_t rows, std::size_t width, float const* outputs, float const* targets,
                            float* d_outputs, SumOfRows to) {
    expect(launch::squared_error(rows, width, outputs, targets, d_outputs, to, queue()), "squared_error");
  }

  /// Number of rows whose largest output is the label's.
  static void hits(std::size_t rows, std::size_t classes, float const* outputs, int const* labels, SumOfRows to) {
    expect(launch::hits(rows, classes, outputs, labels, to, queue()), "hits");
  }

  /// True if no value is infinite or NaN. Waits for the result, which Step::find_bad does not.
  static bool finite(Span<float const> x) {
    auto* const found = static_cast<launch::FirstBad*>(scratch().take(sizeof(launch::FirstBad)));
    expect(cudaMemsetAsync(found, 0xFF, sizeof *found, queue()), "cudaMemsetAsync");
    expect(launch::find_bad(0, x.size(), x.data(), nullptr, found, queue()), "find_bad");
    return value(found).none();
  }

  /// Sum of squares in double: the same bits for the same values. Waits for the result.
  static double squared_norm(Span<float const> g) {
    auto* const sums = static_cast<double*>(scratch().take((launch::partials + 1) * sizeof(double)));
    expect(launch::squared_norm(g.size(), g.data(), sums + 1, sums, queue()), "squared_norm");
    return value(sums);
  }

  struct SgdStep {
    float rate, scale, momentum;  // the gradient is g · scale + decay · w;
    float decay = 0, shrink = 0;  // before the step, w shrinks by shrink · w
  };
  static void sgd(Span<float> w, float const* g, SgdStep s) { sgd(launch::Momentum::none, w, g, nullptr, s); }
  static void sgd_momentum(Span<float> w, float const* g, float* velocity, SgdStep s) {
    sgd(launch::Momentum::classic, w, g, velocity, s);
  }
  static void sgd_nesterov(Span<float> w, float const* g, float* velocity, SgdStep s) {
    sgd(launch::Momentum::nesterov, w, g, velocity, s);
  }

  struct AdamStep {
    float rate, scale, beta_1, beta_2, epsilon, decay;  // the gradient is g · scale; w shrinks by decay
    float correct_1, correct_2;                         // 1 / (1 - beta^t)
  };
  static void adam(Span<float> w, float const* g, float* m, float* v, AdamStep s) {
    expect(launch::adam(w.size(), w.data(), g, m, v,
                        {.rate      = s.rate * s.correct_1,
                         .scale     = s.scale,
                         .beta_1    = s.beta_1,
                         .beta_2    = s.beta_2,
                         .epsilon   = s.epsilon,
                         .decay     = s.decay,
                         .correct_2 = s.correct_2},
                        bad(), queue()),
           "adam");
  }

  /// Dropout in place. The mask is the one of the CPU, number for number.
  static void dropout(std::size_t rows, Layout const& l, float* x, float rate, Pass const& pass, std::uint64_t stream) {
    CHORALE_EXPECTS(pass.on_device != nullptr, "dropout on Cuda needs Pass::on_device, which it reads in each step");
    expect(launch::dropout(rows, l.size() / rows, l.at(x), rate, pass.on_device, stream, queue()), "dropout");
  }

 private:
  static launch::FirstBad const*& bad() {
    thread_local launch::FirstBad const* of_step = nullptr;
    return of_step;
  }

  /// Device memory of this thread, for one function at a time.
  static Room& scratch() {
    thread_local auto rooms = std::vector<Room>{};
    int device              = 0;
    expect(cudaGetDevice(&device), "cudaGetDevice");
    if (rooms.size() <= static_cast<std::size_t>(device)) rooms.resize(static_cast<std::size_t>(device) + 1);
    return rooms[static_cast<std::size_t>(device)];
  }

  /// Waits for the queue, and returns the value at that address.
  template <class T> static T value(T const* at) {
    auto here = T{};
    cuda::copy(&here, at, sizeof here);
    expect(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
    return here;
  }

  static void sgd(launch::Momentum kind, Span<float> w, float const* g, float* velocity, SgdStep s) {
    expect(launch::sgd(kind, w.size(), w.data(), g, velocity,
                       {.rate = s.rate, .scale = s.scale, .momentum = s.momentum, .decay = s.decay, .shrink = s.shrink},
                       bad(), queue()),
           "sgd");
  }
};

}  // namespace chorale::cuda

namespace chorale {

/// Kernels of GPUs: cuBLASLt, cuDNN, and kernels of this library.
template <> struct Kernels<Cuda> : cuda::Loops, cuda::Sequences {
  using layout  = cuda::Layout;
  using Places  = layout;  // always in order
  using runtime = cuda::Runtime;

  static constexpr bool keeps_halves = true;  // activations may be Elements other than f32

  static layout image(int rows, int h, int w, int c) { return {rows, h, w, c}; }
  static layout matrix(int rows, int columns) { return {rows, 1, 1, columns}; }
  static std::size_t bytes(layout const& l) { return l.bytes(); }

  using cuda::Loops::copy;
  /// y = x, and y += x, both in one layout
  static void copy(layout const& l, float const* x, float* y) { cuda::copy(y, x, l.bytes()); }
  static void add(layout const& l, float const* x, float* y) {
    cuda::expect(cuda::launch::add(l.size(), l.at(y), l.at(x), l.at(y), 0, cuda::queue()), "add");
  }

  class Windows;
  class Conv2D;
  class Pool2D;
  class ConvPool;
  class Dense;
  class Activate;
  class Softmax;
  class BatchNorm;
  class Sum;
  class ToRows;
  class ToPlain;
  class ToActivations;
  class Step;
};

}  // namespace chorale

#endif
