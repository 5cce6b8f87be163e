// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/loops.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale {

/// Kernels of CPUs: oneDNN, and loops of this library where oneDNN has none or a slower one.
template <>
struct Kernels<Cpu> : cpu::Loops {
  using layout  = onednn::desc;
  using runtime = onednn::Runtime;

  static layout image(int rows, int h, int w, int c) { return onednn::image(rows, h, w, c); }
  static layout matrix(int rows, int columns) { return onednn::matrix(rows, columns); }
  static std::size_t bytes(layout const& l) { return l.get_size(); }

  using cpu::Loops::copy;
  /// y = x, and y += x, both in one layout
  static void copy(layout const& l, float const* x, float* y) { std::copy_n(x, bytes(l) / sizeof(float), y); }
  static void add(layout const& l, float const* x, float* y) { sum(bytes(l) / sizeof(float), y, x, y); }

  using cpu::Loops::dropout;
  /// Dropout of an activation in any layout.
  static void dropout(std::size_t rows, layout const& l, float* x, float rate, Pass const& pass, std::uint64_t stream) {
    cpu::Loops::dropout(rows, bytes(l) / sizeof(float) / rows, x, rate, pass, stream);
  }

  class Conv2D;
  class Pool2D;
  class ConvPool;
  class Dense;
  class Activate;
  class Softmax;
  class BatchNorm;
  class Sum;
  class ToRows;
  using ToPlain = ToRows;
};

}  // namespace chorale
