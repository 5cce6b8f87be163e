// SPDX-License-Identifier: Apache-2.0
//
// Layers of several inputs in operations; nn::Add is in call.hpp.
#pragma once

#include <chorale/nn/layers/interaction.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/lowering/call.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::nn::stablehlo {

// a - b
template <> struct Lowering<Subtract> {
  static Value write(Call& at) { return at.in[0] - at.in[1]; }
};
// a b
template <> struct Lowering<Multiply> {
  static Value write(Call& at) { return at.in[0] * at.in[1]; }
};
// The second operand of a maximum has the gradient of equal numbers.
template <> struct Lowering<Maximum> {
  static Value write(Call& at) { return maximum(at.in[1], at.in[0]); }
};
// As for Maximum: a has the gradient of equal numbers.
template <> struct Lowering<Minimum> {
  static Value write(Call& at) { return minimum(at.in[1], at.in[0]); }
};
// Added up in their order, then divided.
template <> struct Lowering<Average> {
  static Value write(Call& at) {
    auto y = at.in[0];
    for (std::size_t i = 1; i < at.in.size(); ++i) y = y + at.in[i];
    return y / static_cast<double>(at.in.size());
  }
};
// One number for each row, or a product of matrices for each row.
template <> struct Lowering<Dot> {
  static Value write(Call& at) {
    if (at.x().rank() == 2) return reshape(sum_last(at.in[0] * at.in[1]), {at.rows(), 1});
    return dot(at.in[0], at.in[1], {2}, {2}, {0}, {0});
  }
};
// Along the last dimension.
template <> struct Lowering<Concatenate> {
  static Value write(Call& at) { return concatenate(at.in, at.x().rank() - 1); }
};

// All products of two of the vectors, and of these what is below the diagonal.
template <> struct Lowering<Interaction> {
  static Value write(Call& at) {
    auto const n = static_cast<std::int64_t>(at.in.size());
    auto vectors = std::vector<Value>{}, below = std::vector<Value>{};
    for (auto const x : at.in) vectors.push_back(reshape(x, {at.rows(), 1, x.dim(1)}));
    auto const all      = concatenate(vectors, 1);
    auto const products = dot(all, all, {2}, {2}, {0}, {0});  // (B, n, n)
    for (std::int64_t i = 1; i < n; ++i)
      below.push_back(reshape(slice_of(slice_of(products, 1, i, i + 1), 2, 0, i), {at.rows(), i}));
    return concatenate(below, 1);
  }
};

}  // namespace chorale::nn::stablehlo
