// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace chorale {

/// The sum of f(0) to f(n - 1), of floats, added up in double: right for any n, where a float grows no more once a part
/// is too small for it. Losses and metrics add up rows, and what a row adds up, by it alone.
///
/// order   f is called from 0 to n - 1, and what it gives is added up in 8 lanes, as one sum would wait for itself: the
///         same bits for the same numbers
template <class F> double sum_over(std::size_t n, F&& f) {
  auto lanes = std::array<double, 8>{};
  for (std::size_t i = 0; i < n; ++i) lanes[i % lanes.size()] += static_cast<double>(f(i));
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// A sum with its count, to be combined over replicas, micro-batches and uneven last batches.
///
/// keeps   adding is exact bookkeeping: the mean of a sum of Sums is the mean over all rows, however the rows were
///         distributed
/// order   the mean is formed once, at the end
template <class T> struct Sum {
  T value            = 0;
  std::int64_t count = 0;  // rows

  T mean() const { return count == 0 ? T{0} : value / static_cast<T>(count); }

  Sum& operator+=(Sum const& other) {
    value += other.value;
    count += other.count;
    return *this;
  }
  friend Sum operator+(Sum a, Sum const& b) { return a += b; }
};

}  // namespace chorale
