// SPDX-License-Identifier: Apache-2.0
//
// A model whose variables fit no number of ranks, and what one replica learns of it.
#pragma once

#include "test/support/reference.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace sharded_test {

using namespace chorale;

/// Two layers (7, 15) and (15, 3), a bias (5,), and a weight (16, 17) that is used twice: forth and back.
struct Odd {
  template <class Step, class B> float operator()(Step& step, B const& batch) const {
    auto const a = step.value(0), b = step.value(1), c = step.value(2), d = step.value(3);
    auto const da = step.gradient(0), db = step.gradient(1), dc = step.gradient(2), dd = step.gradient(3);
    auto loss = 0.0F;
    for (std::size_t r = 0; r < batch.rows; ++r) {
      auto const* const x = batch.x.data() + r * 16;
      float hidden[15], d_hidden[15] = {}, wide[17] = {}, d_wide[17] = {};
      for (std::size_t j = 0; j < 15; ++j) {
        auto sum = 0.0F;
        for (std::size_t i = 0; i < 7; ++i) sum += x[i] * a[i * 15 + j];
        hidden[j] = std::tanh(sum);
      }
      for (std::size_t k = 0; k < 3; ++k) {
        auto out = d[k];
        for (std::size_t j = 0; j < 15; ++j) out += hidden[j] * b[j * 3 + k];
        auto const error = out - batch.y[r * 3 + k];
        loss += error * error;
        dd[k] += 2 * error;
        for (std::size_t j = 0; j < 15; ++j) {
          db[j * 3 + k] += 2 * error * hidden[j];
          d_hidden[j] += 2 * error * b[j * 3 + k];
        }
      }
      for (std::size_t j = 0; j < 15; ++j)
        for (std::size_t i = 0; i < 7; ++i) da[i * 15 + j] += x[i] * d_hidden[j] * (1 - hidden[j] * hidden[j]);
      for (std::size_t k = 3; k < 5; ++k) {
        auto const error = d[k] - x[k];
        loss += error * error;
        dd[k] += 2 * error;
      }
      for (std::size_t j = 0; j < 17; ++j)
        for (std::size_t i = 0; i < 16; ++i) wide[j] += x[i] * c[i * 17 + j];
      for (std::size_t i = 0; i < 16; ++i) {
        auto back = 0.0F;
        for (std::size_t j = 0; j < 17; ++j) back += wide[j] * c[i * 17 + j];
        auto const error = back - x[i];
        loss += error * error;
        for (std::size_t j = 0; j < 17; ++j) {
          dc[i * 17 + j] += 2 * error * wide[j];
          d_wide[j] += 2 * error * c[i * 17 + j];
        }
      }
      for (std::size_t j = 0; j < 17; ++j)
        for (std::size_t i = 0; i < 16; ++i) dc[i * 17 + j] += x[i] * d_wide[j];
    }
    return loss;
  }
};

template <class O> auto odd(O optimizer) {
  return custom_model<BasicBatch<float, float>>({{"a/kernel", {7, 15}, Init::glorot_uniform},
                                                 {"b/kernel", {15, 3}, Init::glorot_uniform},
                                                 {"tied", {16, 17}, Init::glorot_uniform},
                                                 {"bias", {5}}},
                                                Odd{}, optimizer);
}

/// A network with batch normalization, dropout and more layers than ranks.
struct Normed : nn::Sequential<nn::Input<16>, nn::Dense<13>, nn::BatchNorm<>, nn::Tanh, nn::Dropout<20>, nn::Dense<7>,
                               nn::BatchNorm<>, nn::ReLU, nn::Dense<3>> {};

template <class O> auto normed(O optimizer) { return nn::compile<Normed>(loss::MeanSquaredError{}, optimizer); }

/// 20 batches, of whose rows most worlds get uneven shares, and some ranks none.
inline tiny::Batches<float> batches() {
  auto sizes = std::vector<std::size_t>(20, 13);
  sizes[3]   = 3;
  return {tiny::batch<float>(19 * 13 + 3, 16, 3), sizes};
}

/// The largest difference of any two values.
inline double apart(Span<float const> a, Span<float const> b) {
  auto worst = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
  return worst;
}

/// What one replica learns: the bits of all variables.
template <class Model, class R> std::vector<float> on_one(Model const& model, R reduce) {
  auto trainer = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, reduce, LocalTransport{}, 7};
  trainer.fit(batches(), tiny::quietly);
  return tiny::values_of(trainer);
}

/// What a strategy learns: the bits of all variables, which all replicas have.
template <class Model, class S, class R, class T>
std::vector<float> learned(Model const& model, S strategy, R reduce, T transport) {
  auto trainer       = Trainer{model, strategy, reduce, transport, 7};
  auto const history = trainer.fit(batches(), tiny::quietly);
  CHECK(history[0].scores.rows() == 19 * 13 + 3);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  return tiny::values_of(trainer);
}

}  // namespace sharded_test
