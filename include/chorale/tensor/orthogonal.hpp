// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace chorale {

/// Writes a random matrix whose rows have length 1 and are orthogonal to each other; if it has more rows than columns,
/// its columns. A function of (random, rows, columns), uniform over all such matrices.
///
/// value    (rows, columns)
/// cost     2 · longer · shorter² multiplications in double, and one copy of the matrix
/// source   tf.keras.initializers.Orthogonal; Saxe et al., ICLR 2014. Gram and Schmidt's process in the order that keeps
///          it stable: Björck, BIT 1967
inline void write_orthogonal(Span<float> value, std::size_t rows, std::size_t columns, Random const& random) {
  auto const n = std::min(rows, columns), length = std::max(rows, columns);
  auto q    = std::vector<double>(length * n);  // (length, n): its columns become orthogonal
  auto dots = std::vector<double>(n);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<double>(random.normal(i));
  for (std::size_t k = 0; k < n; ++k) {
    std::fill(dots.begin(), dots.end(), 0.0);  // of column k with itself and those after it
    for (std::size_t i = 0; i < length; ++i)
      for (std::size_t c = k; c < n; ++c) dots[c] += q[i * n + k] * q[i * n + c];
    auto const norm = std::sqrt(dots[k]);
    for (std::size_t i = 0; i < length; ++i) {
      auto const x = q[i * n + k] /= norm;
      for (std::size_t c = k + 1; c < n; ++c) q[i * n + c] -= x * (dots[c] / norm);
    }
  }
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      value[r * columns + c] = static_cast<float>(rows < columns ? q[c * n + r] : q[r * n + c]);
}

}  // namespace chorale
