// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace chorale::optim {

/// Adam with Nesterov's momentum: m̂ looks one step ahead. With u(t) = beta_1 (1 - 0.96^t / 2) and P(t) the product of
/// u(1) to u(t), m̂ = u(t+1) m / (1 - P(t+1)) + (1 - u(t)) g / (1 - P(t)). On CPUs.
///
/// source   Dozat, ICLR 2016 workshop; tf.keras.optimizers.Nadam, with its defaults
struct Nadam {
  static constexpr int slots = 2;

  Rate learning_rate    = 1e-3F;
  float beta_1          = 0.9F;
  float beta_2          = 0.999F;
  float epsilon         = 1e-7F;
  float global_clipnorm = 0;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("beta_1", beta_1);
    visit("beta_2", beta_2);
    visit("epsilon", epsilon);
    visit("global_clipnorm", global_clipnorm);
  }

  float rate(Moment now) const { return learning_rate(now); }

  template <class D> void update(Update const& u) const {
    static_assert(D::memory == Memory::host, "chorale: optim::Nadam runs on CPUs only. On a GPU use optim::Adam");
    auto const [of_m, of_g]     = ahead(u.now.step + 1);
    auto const correct          = detail::correction(beta_2, u.now);
    auto const step             = rate(u.now);
    auto* const w               = u.values.data();
    auto* const m               = u.slot(0);
    auto* const v               = u.slot(1);
    auto const* const gradients = u.gradients.data();
    for (std::size_t i = 0; i < u.values.size(); ++i) {
      auto const g = gradients[i] * u.scale;
      m[i]         = detail::normal(beta_1 * m[i] + (1 - beta_1) * g);
      v[i]         = detail::normal(beta_2 * v[i] + (1 - beta_2) * (g * g));
      w[i] -= step * ((of_m * m[i] + of_g * g) / (std::sqrt(v[i] * correct) + epsilon));
    }
  }

  /// Factors of m and g in m̂.
  struct Factors {
    float of_m, of_g;
  };

  /// The factors of an update.
  ///
  /// t    steps, from 1 on
  Factors ahead(std::int64_t t) const {
    constexpr std::int64_t last = 960;  // 0.96^960 is 1e-17: factors of 1 from there on
    auto power = 1.0, product = std::pow(double{beta_1}, static_cast<double>(t));
    for (std::int64_t s = 1; s <= std::min(t, last); ++s) power *= 0.96, product *= 1 - power / 2;
    auto const now  = double{beta_1} * (1 - power / 2);
    auto const next = double{beta_1} * (1 - power * 0.96 / 2);
    return {static_cast<float>(next / (1 - product * next)), static_cast<float>((1 - now) / (1 - product))};
  }
};

}  // namespace chorale::optim
