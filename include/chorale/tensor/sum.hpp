// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace chorale {

/// A sum with its count, to be combined over replicas, micro-batches and uneven last batches.
///
/// keeps   adding is exact bookkeeping: the mean of a sum of Sums is the mean over all rows, however the rows were
///         distributed
/// order   the mean is formed once, at the end
template <class T>
struct Sum {
  T value            = 0;
  std::int64_t count = 0;                                                  // rows

  T mean() const { return count == 0 ? T{0} : value / static_cast<T>(count); }

  Sum& operator+=(Sum const& other) {
    value += other.value;
    count += other.count;
    return *this;
  }
  friend Sum operator+(Sum a, Sum const& b) { return a += b; }
};

}  // namespace chorale
