// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/plan.hpp>

#include <cstddef>
#include <string_view>

namespace chorale::nn::detail {

/// Name of a variable, with layers numbered as in Keras: "dense", then "dense_1". `before`: layers of that name so far.
constexpr Name numbered(std::string_view layer, int before, std::string_view variable) {
  auto name = Name{layer};
  if (before > 0) {
    name += "_";
    char digits[12]{};
    auto n = std::size_t{12};
    for (int rest = before; rest > 0; rest /= 10) digits[--n] = static_cast<char>('0' + rest % 10);
    name += std::string_view{digits + n, 12 - n};
  }
  name += "/";
  name += variable;
  return name;
}

}  // namespace chorale::nn::detail
