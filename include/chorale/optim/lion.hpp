// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/optim/optimizer.hpp>

#include <cstddef>

namespace chorale::optim {

/// w -= rate · sign(beta_1 m + (1 - beta_1) g); m = beta_2 m + (1 - beta_2) g. Every number moves by `rate`, or not at
/// all, so that the rate is 3 to 10 times below Adam's; one slot. On CPUs.
///
/// weight_decay   each step first shrinks w by rate · weight_decay · w
/// source         Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023; tf.keras.optimizers.Lion, with its
///                defaults
struct Lion {
  static constexpr int slots = 1;

  Rate learning_rate    = 1e-3F;
  float weight_decay    = 0;
  float beta_1          = 0.9F;
  float beta_2          = 0.99F;
  float global_clipnorm = 0;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("weight_decay", weight_decay);
    visit("beta_1", beta_1);
    visit("beta_2", beta_2);
    visit("global_clipnorm", global_clipnorm);
  }

  float rate(Moment now) const { return learning_rate(now); }

  template <class D> void update(Update const& u) const {
    static_assert(D::memory == Memory::host, "chorale: optim::Lion runs on CPUs only. On a GPU use optim::AdamW");
    auto* const w               = u.values.data();
    auto* const m               = u.slot(0);
    auto const* const gradients = u.gradients.data();
    auto const step = rate(u.now), keep = 1 - step * weight_decay;
    for (std::size_t i = 0; i < u.values.size(); ++i) {
      auto const g  = gradients[i] * u.scale;
      auto const to = beta_1 * m[i] + (1 - beta_1) * g;
      w[i]          = w[i] * keep - (to > 0 ? step : to < 0 ? -step : 0.0F);
      m[i]          = detail::normal(beta_2 * m[i] + (1 - beta_2) * g);
    }
  }
};

}  // namespace chorale::optim
