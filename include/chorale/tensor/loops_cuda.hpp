// SPDX-License-Identifier: Apache-2.0
//
// The kernels of Cuda that are our own and belong to no layer: losses, checks, update rules, dropout. Empty where the
// compiler does not find CUDA.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/launch_cuda.hpp>
#include <chorale/tensor/ops.hpp>
#include <chorale/tensor/runtime_cuda.hpp>

#include <cstddef>
#include <vector>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale::cuda {

/// The same functions as cpu::Loops, on the calling thread's device and in its queue. Outputs and gradients are of the
/// device; labels and targets are of the host, and copied.
///
/// cost    each returns when all that was queued before is done, because its caller reads the result on the host
struct Loops {
  /// y = x, n numbers; x may be the host's
  static void copy(std::size_t n, float const* x, float* y) {
    expect(cudaMemcpyAsync(y, x, n * sizeof(float), cudaMemcpyDefault, queue()), "cudaMemcpyAsync");
  }

  static float sparse_cross_entropy(std::size_t rows, std::size_t classes, float const* logits, int const* labels,
                                    float* d_logits) {
    return loss(rows, rows, labels, [&](int const* at, float* losses) {
      return launch::sparse_cross_entropy(rows, classes, logits, at, d_logits, losses, queue());
    });
  }
  static float cross_entropy(std::size_t rows, std::size_t classes, float const* logits, float const* targets,
                             float* d_logits) {
    return loss(rows, rows * classes, targets, [&](float const* at, float* losses) {
      return launch::cross_entropy(rows, classes, logits, at, d_logits, losses, queue());
    });
  }
  static float squared_error(std::size_t rows, std::size_t width, float const* outputs, float const* targets,
                             float* d_outputs) {
    return loss(rows, rows * width, targets, [&](float const* at, float* losses) {
      return launch::squared_error(rows, width, outputs, at, d_outputs, losses, queue());
    });
  }

  /// Rows whose largest output is the one that the label names.
  static float hits(std::size_t rows, std::size_t classes, float const* outputs, int const* labels) {
    return loss(rows, rows, labels, [&](int const* at, float* hits) {
      return launch::hits(rows, classes, outputs, at, hits, queue());
    });
  }

  static bool finite(Span<float const> x) {
    auto* const bad = static_cast<int*>(scratch().take(sizeof(int)));
    expect(cudaMemsetAsync(bad, 0, sizeof(int), queue()), "cudaMemsetAsync");
    expect(launch::find_bad(x.size(), x.data(), bad, queue()), "find_bad");
    return value(bad) == 0;
  }

  /// Sum of squares in double: the same bits for the same values.
  static double squared_norm(Span<float const> g) {
    auto* const sums = static_cast<double*>(scratch().take((launch::partials + 1) * sizeof(double)));
    expect(launch::squared_norm(g.size(), g.data(), sums + 1, sums, queue()), "squared_norm");
    return value(sums);
  }

  struct SgdStep {
    float rate, scale, momentum;                                           // the gradient is g · scale
  };
  static void sgd(Span<float> w, float const* g, SgdStep s) { sgd(launch::Momentum::none, w, g, nullptr, s); }
  static void sgd_momentum(Span<float> w, float const* g, float* velocity, SgdStep s) {
    sgd(launch::Momentum::classic, w, g, velocity, s);
  }
  static void sgd_nesterov(Span<float> w, float const* g, float* velocity, SgdStep s) {
    sgd(launch::Momentum::nesterov, w, g, velocity, s);
  }

  struct AdamStep {
    float rate, scale, beta_1, beta_2, epsilon, decay;                  // the gradient is g · scale; w shrinks by decay
    float correct_1, correct_2;                                            // 1 / (1 - beta^t)
  };
  static void adam(Span<float> w, float const* g, float* m, float* v, AdamStep s) {
    expect(launch::adam(w.size(), w.data(), g, m, v, {.rate = s.rate * s.correct_1, .scale = s.scale,
                        .beta_1 = s.beta_1, .beta_2 = s.beta_2, .epsilon = s.epsilon, .decay = s.decay,
                        .correct_2 = s.correct_2}, queue()), "adam");
    expect(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
  }

  /// The mask is the one of the CPU, number for number.
  static void dropout(std::size_t rows, std::size_t width, float* x, float rate, Pass const& pass,
                      std::uint64_t stream) {
    auto const seed = Seed{pass.seed.value ^ (pass.step + 1) * 0x9e3779b97f4a7c15ULL};
    expect(launch::dropout(rows, width, x, rate, seed, stream, pass.first_row, queue()), "dropout");
  }

 private:
  /// Device memory of this thread, for one function at a time.
  static Room& scratch() {
    thread_local auto rooms = std::vector<Room>{};
    int device = 0;
    expect(cudaGetDevice(&device), "cudaGetDevice");
    if (rooms.size() <= static_cast<std::size_t>(device)) rooms.resize(static_cast<std::size_t>(device) + 1);
    return rooms[static_cast<std::size_t>(device)];
  }

  /// What is there when the queue has come to here.
  template <class T>
  static T value(T const* at) {
    auto here = T{};
    expect(cudaMemcpyAsync(&here, at, sizeof here, cudaMemcpyDefault, queue()), "cudaMemcpyAsync");
    expect(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
    return here;
  }

  /// Copies n targets to the device, queues compute(targets, one number a row), and adds the numbers up.
  template <class T, class Compute>
  static float loss(std::size_t rows, std::size_t n, T const* targets, Compute compute) {
    auto plan = Cutter{};
    plan.take(sizeof(double)), plan.take(n * sizeof(T)), plan.take(rows * sizeof(float));
    auto cut           = Cutter{static_cast<std::byte*>(scratch().take(plan.used()))};
    auto* const sum    = cut.take_some<double>(1);
    auto* const here   = cut.take_some<T>(n);
    auto* const losses = cut.take_floats(rows);
    expect(cudaMemcpyAsync(here, targets, n * sizeof(T), cudaMemcpyDefault, queue()), "cudaMemcpyAsync");
    expect(compute(here, losses), "loss");
    expect(launch::total(rows, losses, sum, queue()), "total");
    return static_cast<float>(value(sum));
  }

  static void sgd(launch::Momentum kind, Span<float> w, float const* g, float* velocity, SgdStep s) {
    expect(launch::sgd(kind, w.size(), w.data(), g, velocity, s.rate, s.scale, s.momentum, queue()), "sgd");
    expect(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
  }
};

}  // namespace chorale::cuda

#endif
