// SPDX-License-Identifier: Apache-2.0
//
// A model whose gradients are written by hand: a sum of exponentials, fitted to a curve.
#pragma once

#include <chorale/chorale.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace decay {

using namespace chorale;

using Row = BasicBatch<float, float>;

inline constexpr std::size_t terms = 3;

inline std::vector<NamedShape> variables() {
  return {{"offset"}, {"amplitude", {terms}, Init::glorot_uniform}, {"rate", {terms}, Init::ones}};
}

/// y = offset + sum of a[t] exp(-b[t] x). Returns the sum of squared errors; adds up its gradients, unless d_offset is
/// null.
inline float squared_error(Row const& batch, float offset, Span<float const> a, Span<float const> b, float* d_offset,
                           float* da, float* db) {
  auto loss = 0.0F;
  for (std::size_t r = 0; r < batch.rows; ++r) {
    auto e = offset - batch.y[r];
    for (std::size_t t = 0; t < terms; ++t) e += a[t] * std::exp(-b[t] * batch.x[r]);
    loss += e * e;
    if (d_offset == nullptr) continue;
    *d_offset += 2 * e;
    for (std::size_t t = 0; t < terms; ++t) {
      auto const p = std::exp(-b[t] * batch.x[r]);
      da[t] += 2 * e * p;
      db[t] -= 2 * e * a[t] * p * batch.x[r];
    }
  }
  return loss;
}

/// The function of a custom_model, without a word about when a gradient is final.
inline auto const function = [](auto& step, Row const& batch) {
  return squared_error(batch, step.value(0)[0], step.value(1), step.value(2), step.gradient(0).data(),
                       step.gradient(1).data(), step.gradient(2).data());
};

/// A Learner with everything that it may have.
struct Fit {
  static constexpr std::array<std::string_view, 1> metric_names{"rows"};
  static constexpr std::size_t output_width = 1;

  void learn(auto& step, Row const& batch) {
    auto const loss = squared_error(batch, step.value(0)[0], step.value(1), step.value(2), step.gradient(0).data(),
                                    step.gradient(1).data(), step.gradient(2).data());
    step.done(1);
    step.loss(loss, static_cast<float>(batch.rows));
    step.done(2);
    step.done(0);
  }
  void evaluate(Variables const& v, Row const& batch, StepHeader<float> header) {
    ++evaluated;
    header.loss()    = squared_error(batch, v[0].value[0], v[1].value, v[2].value, nullptr, nullptr, nullptr);
    header.metric(0) = static_cast<float>(batch.rows);
  }
  Span<float const> predict(Variables const& v, Row const& batch) {
    outputs.assign(batch.rows, v[0].value[0]);
    for (std::size_t r = 0; r < batch.rows; ++r)
      for (std::size_t t = 0; t < terms; ++t) outputs[r] += v[1].value[t] * std::exp(-v[2].value[t] * batch.x[r]);
    return outputs;
  }
  void place(Variables const& v, Gradients const& g) {
    ++placed;
    where = {v.values.data(), g.values.data()};
  }
  void initialize(Variables const& v, Seed) {
    for (std::size_t t = 0; t < terms; ++t) {
      v[1].value[t] = 0.1F * static_cast<float>(t + 1);
      v[2].value[t] = 0.5F * static_cast<float>(t + 1);
    }
  }

  std::vector<float> outputs{};
  std::array<float const*, 2> where{};
  int evaluated = 0, placed = 0;
};

inline auto model() { return custom_model<Row>(variables(), function, optim::Adam{.learning_rate = 2e-2F}); }
inline auto fit_model() { return custom_model<Row>(variables(), Fit{}, optim::Adam{.learning_rate = 2e-2F}); }

/// 203 rows in batches of 16: no number of replicas divides all of them.
inline auto data(std::size_t rows = 203) {
  auto x = std::vector<float>(rows), y = x;
  for (std::size_t r = 0; r < rows; ++r) {
    x[r] = 0.02F * static_cast<float>(r);
    y[r] = 1.5F * std::exp(-0.7F * x[r]) - 0.5F * std::exp(-2.0F * x[r]) + 0.2F;
  }
  return data::from_tensors(x, y, 1).shuffle(rows).batch(16);
}

/// What a trainer of the model has after two epochs: the variables of the first replica, and all hashes.
struct Trained {
  std::vector<float> values;
  std::vector<std::uint64_t> hashes;
};
template <class Model, class S, class R = RingAllReduce, class T = LocalTransport>
Trained trained(Model const& model, S strategy, R reduce = {}, T transport = {}) {
  auto trainer = Trainer{model, std::move(strategy), reduce, std::move(transport), 3};
  trainer.fit(data(), {.epochs = 2, .show = Show::nothing, .compare_every = 1});
  auto const body = trainer.variables().body();
  return {{body.begin(), body.end()}, trainer.hashes()};
}

inline double difference(Trained const& a, Trained const& b) {
  auto largest = 0.0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
  return largest;
}

}  // namespace decay
