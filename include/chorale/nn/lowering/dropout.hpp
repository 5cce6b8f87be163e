// SPDX-License-Identifier: Apache-2.0
//
// Layers of random numbers in operations. A row's numbers are counted in the order in which it is written, the channels
// of a pixel side by side; the kernels of Cpu count them as they lie in memory, which behind a convolution is another.
#pragma once

#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/gaussian_noise.hpp>
#include <chorale/nn/lowering/call.hpp>
#include <chorale/nn/lowering/random.hpp>

#include <cstdint>
#include <numbers>
#include <vector>

namespace chorale::nn::stablehlo {

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

}  // namespace chorale::nn::stablehlo
