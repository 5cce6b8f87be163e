// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace chorale {

/// The shape of one row of a tensor, known to the compiler. The batch dimension is not in it.
///
///   Shape<28, 28, 1>    an image, height × width × channels
///   Shape<10>           ten numbers
///   Shape<>             one number
template <int... D> struct Shape {
  static_assert(((D > 0) && ...), "chorale: every dimension of a Shape must be at least 1");

  static constexpr int rank = sizeof...(D);
  static constexpr std::array<int, rank> dims{D...};
  static constexpr std::size_t size = (std::size_t{1} * ... * static_cast<std::size_t>(D));

  static std::string to_string() {
    std::string text = "(";
    for (int i = 0; i < rank; ++i) text.append(i ? ", " : "") += std::to_string(dims[static_cast<std::size_t>(i)]);
    return text + (rank == 1 ? ",)" : ")");
  }
};

}  // namespace chorale
