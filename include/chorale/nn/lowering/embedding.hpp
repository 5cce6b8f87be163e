// SPDX-License-Identifier: Apache-2.0
//
// Tables of vectors in operations. A device reads some row for an id that is in no row of a table, and reports nothing:
// who puts ids on it looks at them before.
#pragma once

#include <chorale/nn/layers/class_token.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/lowering/call.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale::nn::stablehlo {

// The gradient of the table is dense here, also where it is rows on other devices.
template <int Rows, int Width, class... Options> struct Lowering<Embedding<Rows, Width, Options...>> {
  static Value write(Call& at) { return gather(at.variables[0], convert(at.x(), Element::i32)); }
};

// x Wᵀ over the last dimension.
template <int Rows, int Width> struct Lowering<nn::detail::Logits<Rows, Width>> {
  static Value write(Call& at) {
    return dot(at.x(), at.variables[0], {static_cast<std::int64_t>(at.x().rank()) - 1}, {1});
  }
};

// The sum of the rows of each bag, or their mean.
template <int Rows, int Width, Bag As, class... Options> struct Lowering<EmbeddingBag<Rows, Width, As, Options...>> {
  static Value write(Call& at) {
    auto const ids = static_cast<std::size_t>(at.x().dim(1));
    auto const y   = sum(gather(at.variables[0], convert(at.x(), Element::i32)), {1});
    return As == Bag::sum ? y : y * static_cast<double>(nn::detail::factor_of(As, ids));
  }
};

// x + the first rows of the table.
template <int Steps, int Width> struct Lowering<Positions<Steps, Width>> {
  static Value write(Call& at) { return at.x() + along_last(slice_of(at.variables[0], 0, 0, at.x().dim(1)), at.x()); }
};

// The token, and behind it the sequence.
template <> struct Lowering<ClassToken> {
  static Value write(Call& at) {
    return concatenate({broadcast(at.variables[0], {at.rows(), 1, at.x().dim(2)}, {1, 2}), at.x()}, 1);
  }
};

}  // namespace chorale::nn::stablehlo
