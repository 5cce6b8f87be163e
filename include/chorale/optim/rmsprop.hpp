// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace chorale::optim {

/// v = rho v + (1 - rho) g²; w -= rate · g / sqrt(v + epsilon). With momentum, w -= b where b = momentum · b + that step.
/// Centered, v - a² takes the place of v, where a = rho a + (1 - rho) g: the variance of g. On CPUs.
///
/// keeps    v - a² counts as 0 where rounding makes it negative; Keras takes the root of a negative number there
/// source   Tieleman & Hinton, 2012; centered: Graves, 2013; tf.keras.optimizers.RMSprop, with its defaults
struct RMSprop {
  static constexpr int slots = 3;  // v; then b and a, where they are in use

  Rate learning_rate    = 1e-3F;
  float rho             = 0.9F;
  float momentum        = 0;
  float epsilon         = 1e-7F;
  bool centered         = false;
  float global_clipnorm = 0;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("rho", rho);
    visit("momentum", momentum);
    visit("epsilon", epsilon);
    visit("centered", centered);
    visit("global_clipnorm", global_clipnorm);
  }

  float rate(Moment now) const { return learning_rate(now); }
  int slots_in_use() const { return 1 + (momentum > 0 ? 1 : 0) + (centered ? 1 : 0); }

  template <class D> void update(Update const& u) const {
    static_assert(D::memory == Memory::host, "chorale: optim::RMSprop runs on CPUs only. On a GPU use optim::Adam");
    auto const moves            = momentum > 0;
    auto* const w               = u.values.data();
    auto* const v               = u.slot(0);
    auto* const b               = moves ? u.slot(1) : nullptr;
    auto* const a               = centered ? u.slot(moves ? 2 : 1) : nullptr;
    auto const* const gradients = u.gradients.data();
    auto const step             = rate(u.now);
    for (std::size_t i = 0; i < u.values.size(); ++i) {
      auto const g  = gradients[i] * u.scale;
      v[i]          = detail::normal(rho * v[i] + (1 - rho) * (g * g));
      auto variance = v[i];
      if (centered) {
        a[i]     = detail::normal(rho * a[i] + (1 - rho) * g);
        variance = std::max(variance - a[i] * a[i], 0.0F);
      }
      auto by = step * g / std::sqrt(variance + epsilon);
      if (moves) by = b[i] = detail::normal(momentum * b[i] + by);
      w[i] -= by;
    }
  }
};

}  // namespace chorale::optim
