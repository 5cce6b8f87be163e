// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/tensor/loops_cpu.hpp>
#include <chorale/tensor/onednn.hpp>
#include <chorale/tensor/ops.hpp>

#include <cstddef>

namespace chorale {

template <>
struct Kernels<Cpu> : cpu::Loops {
  using layout  = onednn::desc;
  using runtime = onednn::Runtime;

  static layout image(int rows, int h, int w, int c) { return onednn::image(rows, h, w, c); }
  static layout matrix(int rows, int columns) { return onednn::matrix(rows, columns); }
  static std::size_t bytes(layout const& l) { return l.get_size(); }

  class Conv2D;
  class Pool2D;
  class ConvPool;
  class Dense;
  class Activate;
  class Softmax;
  class BatchNorm;
  class ToRows;
};

}  // namespace chorale
