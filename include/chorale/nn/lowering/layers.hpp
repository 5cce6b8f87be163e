// SPDX-License-Identifier: Apache-2.0
//
// How all layers of the library are written in operations, except layers that are split over the axes of a mesh.
#pragma once

#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/class_token.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/layers/gaussian_noise.hpp>
#include <chorale/nn/layers/interaction.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/layers/multi_head_attention.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/layers/resize.hpp>
#include <chorale/nn/lowering/activation.hpp>
#include <chorale/nn/lowering/call.hpp>
#include <chorale/nn/lowering/convolution.hpp>
#include <chorale/nn/lowering/normalization.hpp>
#include <chorale/nn/lowering/pool.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/lowering/recurrent.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

namespace detail {

/// softmax(q kᵀ / sqrt(W)) v of each head.
///
/// q, k, v   (B, T, Heads, W), (B, S, Heads, W), (B, S, Heads, W)
/// causal    step t sees the steps up to t
/// returns   (B, Heads, T, W)
inline Value attended(Value q, Value k, Value v, bool causal) {
  auto scores = dot(q, k, {3}, {3}, {0, 2}, {0, 2}) * static_cast<double>(1 / std::sqrt(static_cast<float>(q.dim(3))));
  if (causal) {
    auto const step = [&](std::int64_t along) { return q.program->iota(Element::i32, scores.dims(), along); };
    scores          = select(compare(step(3), "LE", step(2)), scores, -HUGE_VAL);
  }
  return dot(softmax(scores), v, {3}, {1}, {0, 1}, {0, 2});
}

/// Heads and CausalHeads: x (B, T, 3 C), y (B, T, C).
template <int Heads, bool Causal> struct HeadsAsText {
  static Value write(Call& at) {
    auto const steps = at.x().dim(1), width = at.x().dim(2) / 3;
    auto const part = [&](std::int64_t i) {
      return reshape(slice_of(at.x(), 2, i * width, (i + 1) * width), {at.rows(), steps, Heads, width / Heads});
    };
    auto const y = attended(part(0), part(1), part(2), Causal);
    return reshape(transpose(y, {0, 2, 1, 3}), {at.rows(), steps, width});
  }
};

}  // namespace detail

// Attention. The probabilities of all pairs are values, which a compiler may compute in tiles.
template <int Number> struct Lowering<Heads<Number>> : detail::HeadsAsText<Number, false> {};
template <int Number> struct Lowering<CausalHeads<Number>> : detail::HeadsAsText<Number, true> {};

// Products of query and value, attention, and a product of all heads.
template <int Heads, int KeyDim, class... Options> struct Lowering<MultiHeadAttention<Heads, KeyDim, Options...>> {
  static Value write(Call& at) {
    auto const product = [&](Value x, std::size_t of) {  // (B, T, Heads, KeyDim)
      auto const y = dot(x, at.variables[of], {2}, {0});
      return y + along_last(at.variables[of + 1], y);
    };
    auto const source = at.in.back();
    auto const o      = detail::attended(product(at.x(), 0), product(source, 2), product(source, 4),
                                         MultiHeadAttention<Heads, KeyDim, Options...>::causal);
    auto const y      = dot(o, at.variables[6], {1, 3}, {0, 1});
    return y + along_last(at.variables[7], y);
  }
};

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

// (B, ..) to (B, To...).
template <int... To> struct Lowering<Reshape<To...>> {
  static Value write(Call& at) { return reshape(at.x(), {at.rows(), To...}); }
};
// Permutes the dimensions after the rows, which stay first.
template <int... Axes> struct Lowering<Permute<Axes...>> {
  static Value write(Call& at) { return transpose(at.x(), {0, Axes + 1 ...}); }
};
// An axis is counted from the last one if it is negative.
template <int Begin, int End, int Axis> struct Lowering<Slice<Begin, End, Axis>> {
  static Value write(Call& at) {
    auto const rank = static_cast<int>(at.x().rank());
    return slice_of(at.x(), static_cast<std::size_t>(Axis < 0 ? rank + Axis : Axis + 1), Begin, End);
  }
};

// Pixels repeated along dimensions of their own, which then are one with height and width.
template <int Rows, int Columns> struct Lowering<UpSampling2D<Rows, Columns>> {
  static Value write(Call& at) {
    auto const h = at.x().dim(1), w = at.x().dim(2), c = at.x().dim(3);
    auto const y = broadcast(at.x(), {at.rows(), h, Rows, w, Columns, c}, {0, 1, 3, 5});
    return reshape(y, {at.rows(), h * Rows, w * Columns, c});
  }
};
// Zeros around the image.
template <int Top, int Bottom, int Left, int Right> struct Lowering<ZeroPadding2D<Top, Bottom, Left, Right>> {
  static Value write(Call& at) { return pad(at.x(), 0, {0, Top, Left, 0}, {0, Bottom, Right, 0}); }
};
// The part within.
template <int Top, int Bottom, int Left, int Right> struct Lowering<Cropping2D<Top, Bottom, Left, Right>> {
  static Value write(Call& at) {
    auto const& in = at.x().dims();
    return slice(at.x(), {0, Top, Left, 0}, {in[0], in[1] - Bottom, in[2] - Right, in[3]});
  }
};

// Tables. A device reads some row for an id that is in no row of a table, and reports nothing: who puts ids on it looks
// at them before.
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

// The token, followed by the sequence.
template <> struct Lowering<ClassToken> {
  static Value write(Call& at) {
    return concatenate({broadcast(at.variables[0], {at.rows(), 1, at.x().dim(2)}, {1, 2}), at.x()}, 1);
  }
};

namespace detail {

inline Value word(Value x, std::uint32_t number) {
  return x.program->constant(static_cast<double>(number), x.dims(), Element::u32);
}

/// The 64 bits of x times a number, as their high and their low half. Operations give 32 bits of a product, so the high
/// half is put together from products of 16 bits each.
inline std::pair<Value, Value> wide_product(Value x, std::uint32_t by) {
  auto const few = [](Value v) { return v & word(v, 0xFFFF); };
  auto const a = few(x), b = shifted_right(x, 16);
  auto const c = word(x, by & 0xFFFF), d = word(x, by >> 16);
  auto const ad = a * d, bc = b * c;
  auto const middle = shifted_right(a * c, 16) + few(ad) + few(bc);
  auto const high   = b * d + shifted_right(ad, 16) + shifted_right(bc, 16) + shifted_right(middle, 16);
  return {high, x * word(x, by)};
}

}  // namespace detail

/// The words of chorale::Random of a step, in operations: Philox4x32-10. They have the same bits.
///
/// index     high and low half, of any shape
/// returns   four words for each index
inline std::array<Value, 4> random_words(Drawn const& drawn, std::uint64_t stream, Value index_high, Value index_low) {
  auto const like = [&](Value scalar) { return broadcast(scalar, index_low.dims(), {}); };
  auto counter    = std::array{index_low, index_high, detail::word(index_low, static_cast<std::uint32_t>(stream)),
                            detail::word(index_low, static_cast<std::uint32_t>(stream >> 32))};
  auto key        = std::array{drawn.seed_low, drawn.seed_high};
  for (int round = 0; round < 10; ++round) {
    auto const [a_high, a_low] = detail::wide_product(counter[0], 0xD2511F53);
    auto const [b_high, b_low] = detail::wide_product(counter[2], 0xCD9E8D57);
    counter                    = {b_high ^ counter[1] ^ like(key[0]), b_low, a_high ^ counter[3] ^ like(key[1]), a_low};
    key                        = {key[0] + detail::word(key[0], 0x9E3779B9), key[1] + detail::word(key[1], 0xBB67AE85)};
  }
  return counter;
}

/// The words for `each` indices of each row: index (row of the global batch) * each + i.
///
/// returns   four values (B, each)
inline std::array<Value, 4> random_words(Call& at, std::int64_t each) {
  auto const dims        = Dims{at.rows(), each};
  auto const row         = at.program.iota(Element::u32, dims, 0) + broadcast(at.drawn.first_row, dims, {});
  auto const [high, low] = detail::wide_product(row, static_cast<std::uint32_t>(each));
  auto const index       = low + at.program.iota(Element::u32, dims, 1);
  auto const carry       = convert(compare(index, "LT", low), Element::u32);
  return random_words(at.drawn, static_cast<std::uint64_t>(at.number), high + carry, index);
}

// Random numbers of a row are counted in the order in which it is written, the channels of a pixel side by side; the
// kernels of Cpu count them in the order of memory, which differs after a convolution.
// What is dropped is, of rows of numbers, to the bit what Cpu drops.
template <Fraction Rate> struct Lowering<Dropout<Rate>> {
  static Value write(Call& at) {
    if (!at.training || Rate.value == 0) return at.x();
    constexpr auto rate  = Rate.as_float();
    constexpr auto scale = 1.0F / (1.0F - rate);
    constexpr auto limit = static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
    auto const width     = count(at.x().dims()) / at.rows();
    auto const blocks    = (width + 3) / 4;  // an index gives four words
    auto words           = std::vector<Value>{};
    for (auto const w : random_words(at, blocks)) words.push_back(reshape(w, {at.rows(), blocks, 1}));
    auto const all        = reshape(concatenate(words, 2), {at.rows(), 4 * blocks});
    auto const is_dropped = compare(slice_of(all, 1, 0, width), "LT", static_cast<double>(limit));
    return select(reshape(is_dropped, at.x().dims()), 0.0, at.x() * static_cast<double>(scale));
  }
};

// The bits of the words are those on Cpu; the logarithm, the root and the cosine round as the device does.
template <Fraction Deviation> struct Lowering<GaussianNoise<Deviation>> {
  static Value write(Call& at) {
    if (!at.training || Deviation.value == 0) return at.x();
    auto const words = random_words(at, count(at.x().dims()) / at.rows());
    auto const unit  = [](Value w) { return convert(shifted_right(w, 8), Element::f32) * 0x1p-24; };
    auto const size  = sqrt(-2.0 * log(1.0 - unit(words[0])));
    auto const angle = static_cast<double>(2.0F * std::numbers::pi_v<float>) * unit(words[1]);
    return at.x() + reshape(size * cos(angle), at.x().dims()) * static_cast<double>(Deviation.as_float());
  }
};

// x W + b over the last dimension; of images, over the whole row.
template <int Units, class... Options> struct Lowering<Dense<Units, Options...>> {
  static Value write(Call& at) {
    auto const y = matmul(at.x(), at.variables[0]);
    return y + along_last(at.variables[1], y);
  }
};

// (B, ..) to (B, N).
template <> struct Lowering<Flatten> {
  static Value write(Call& at) { return reshape(at.x(), {at.rows(), count(at.x().dims()) / at.rows()}); }
};

}  // namespace chorale::nn::stablehlo
