// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/optim/optimizer.hpp>

namespace chorale::optim {

/// w -= rate · g, with momentum when asked: v = momentum · v - rate · g; w += v.
///
/// source  tf.keras.optimizers.SGD; Nesterov's form: Sutskever et al., ICML 2013
struct SGD {
  enum class Momentum { classic, nesterov };

  static constexpr int slots = 1;
  static constexpr bool queues = true;

  Rate learning_rate    = 0.01F;
  float momentum        = 0;
  Momentum kind         = Momentum::classic;
  float global_clipnorm = 0;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("kind", kind == Momentum::classic ? "classic" : "nesterov");
    visit("global_clipnorm", global_clipnorm);
  }

  float rate(Moment now) const { return learning_rate(now); }
  int slots_in_use() const { return momentum == 0 ? 0 : slots; }

  template <class D>
  void update(Update const& u) const {
    auto const step = typename Kernels<D>::SgdStep{.rate = rate(u.now), .scale = u.scale, .momentum = momentum};
    if (momentum == 0) Kernels<D>::sgd(u.values, u.gradients.data(), step);
    else if (kind == Momentum::classic) Kernels<D>::sgd_momentum(u.values, u.gradients.data(), u.slot(0), step);
    else Kernels<D>::sgd_nesterov(u.values, u.gradients.data(), u.slot(0), step);
  }
};

}  // namespace chorale::optim
