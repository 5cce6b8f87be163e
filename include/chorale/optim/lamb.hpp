// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/tensor/kernels.hpp>

#include <array>
#include <cmath>
#include <cstddef>

namespace chorale::optim {

/// Adam for large batches: the step of each variable, s = m̂ / (sqrt(v̂) + epsilon), is as long as the variable itself:
/// w -= rate · |w| / |s| · s, with norms over the whole variable, and a ratio of 1 where one of them is 0. On CPUs.
///
/// weight_decay   each step first shrinks w by rate · weight_decay · w, as in Keras; in the paper the decay is a part of s
/// order          norms are sums in double, in an order that depends on the size of the variable alone
/// throws         BadArgument when a copy of a model is made whose gradients of a table are rows: they are not whole
/// source         You et al., "Large Batch Optimization for Deep Learning", ICLR 2020; tf.keras.optimizers.Lamb, with its
///                defaults
struct Lamb {
  static constexpr int slots        = 2;
  static constexpr bool by_variable = true;

  Rate learning_rate    = 1e-3F;
  float weight_decay    = 0;
  float beta_1          = 0.9F;
  float beta_2          = 0.999F;
  float epsilon         = 1e-7F;
  float global_clipnorm = 0;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("weight_decay", weight_decay);
    visit("beta_1", beta_1);
    visit("beta_2", beta_2);
    visit("epsilon", epsilon);
    visit("global_clipnorm", global_clipnorm);
  }

  float rate(Moment now) const { return learning_rate(now); }

  /// Updates one whole variable, with its padding.
  template <class D> void update_variable(Update const& u) const {
    static_assert(D::memory == Memory::host, "chorale: optim::Lamb runs on CPUs only. On a GPU use optim::AdamW");
    auto const correct_1 = detail::correction(beta_1, u.now), correct_2 = detail::correction(beta_2, u.now);
    auto const n    = u.values.size();
    auto const step = rate(u.now), keep = 1 - step * weight_decay;
    auto* const w               = u.values.data();
    auto* const m               = u.slot(0);
    auto* const v               = u.slot(1);
    auto const* const gradients = u.gradients.data();
    for (std::size_t i = 0; i < n; ++i) {
      auto const g = gradients[i] * u.scale;
      w[i] *= keep;
      m[i] = detail::normal(beta_1 * m[i] + (1 - beta_1) * g);
      v[i] = detail::normal(beta_2 * v[i] + (1 - beta_2) * (g * g));
    }
    auto const s         = [&](std::size_t i) { return m[i] * correct_1 / (std::sqrt(v[i] * correct_2) + epsilon); };
    auto const of_values = norm(n, [w](std::size_t i) { return w[i]; });
    auto const of_step   = norm(n, s);
    auto const by        = of_values > 0 && of_step > 0 ? static_cast<float>(double{step} * of_values / of_step) : step;
    for (std::size_t i = 0; i < n; ++i) w[i] -= by * s(i);
  }

  /// Refuses an update of a piece of a variable.
  template <class D> void update(Update const&) const {
    static_assert(sizeof(D) == 0,
                  "chorale: optim::Lamb takes the norm of each whole variable, and does not run where "
                  "variables are updated in pieces, as by the servers of ParameterServerStrategy. Use "
                  "MultiWorkerMirroredStrategy, or optim::AdamW");
  }

 private:
  template <class F> static double norm(std::size_t n, F&& f) {
    auto sums = std::array<double, 8>{};  // lanes: one sum would wait for itself
    auto i    = std::size_t{0};
    for (; i + sums.size() <= n; i += sums.size())
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += double{f(i + k)} * double{f(i + k)};
    for (std::size_t k = 0; i < n; ++i, ++k) sums[k] += double{f(i)} * double{f(i)};
    auto sum = 0.0;
    for (auto const x : sums) sum += x;
    return std::sqrt(sum);
  }
};

}  // namespace chorale::optim
