// loss_with_row.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Absolute {
  using target = float;
  float row(Span<float const> y, Span<float const> wanted, Span<float> dy) const {
    dy[0] = y[0] < wanted[0] ? -1.0F : 1.0F;
    return std::abs(y[0] - wanted[0]);
  }
};

float sum(float const* y, float const* wanted, float* dy) { return loss::sum_of<Cpu>(Absolute{}, 4, 1, y, wanted, dy); }
