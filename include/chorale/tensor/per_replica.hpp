// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// One value for each replica of this process.
///
/// It is not a T: to get one value, `Live::reduce` combines them, `Live::gather` lists them, and [i] names a replica.
template <class T> class PerReplica {
 public:
  explicit PerReplica(std::size_t replicas = 0) : values_(replicas) {}
  explicit PerReplica(std::vector<T> values) : values_{std::move(values)} {}

  std::size_t size() const { return values_.size(); }
  T& operator[](std::size_t replica) & { return values_[replica]; }
  T const& operator[](std::size_t replica) const& { return values_[replica]; }
  T operator[](std::size_t replica) && { return std::move(values_[replica]); }

  template <class U> requires std::is_arithmetic_v<U> operator U() const {
    static_assert(sizeof(U) == 0,
                  "chorale: a PerReplica is one value for each replica, not one number. Combine them with "
                  "strategy.reduce(values), or name a replica: values[0]");
    return {};
  }

  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<T> values_;
};

}  // namespace chorale
