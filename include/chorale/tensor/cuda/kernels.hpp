// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/loops.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// Kernels of GPUs: cuBLASLt, cuDNN, and kernels of this library.
template <>
struct Kernels<Cuda> : cuda::Loops {
  using layout  = cuda::Layout;
  using runtime = cuda::Runtime;

  static constexpr bool keeps_halves = true;                               // activations may be Elements other than f32

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
