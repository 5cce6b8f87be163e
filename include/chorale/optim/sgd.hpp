// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/optim/optimizer.hpp>

namespace chorale::optim {

/// w -= rate · g, with momentum when asked: v = momentum · v - rate · g; w += v.
///
/// weight_decay    decoupled: each step also shrinks w by rate · weight_decay · w, as in Keras. in_gradient: the gradient
///                 is g + weight_decay · w, as in torch.optim.SGD and in papers about images; with momentum that shrinks
///                 w about 1 / (1 - momentum) times as much
/// source          tf.keras.optimizers.SGD; Nesterov's form: Sutskever et al., ICML 2013
struct SGD {
  enum class Momentum { classic, nesterov };
  enum class Decay { decoupled, in_gradient };

  static constexpr int slots   = 1;
  static constexpr bool queues = true;

  Rate learning_rate    = 0.01F;
  float momentum        = 0;
  Momentum kind         = Momentum::classic;
  float global_clipnorm = 0;
  float weight_decay    = 0;
  Decay decay           = Decay::decoupled;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("kind", kind == Momentum::classic ? "classic" : "nesterov");
    visit("global_clipnorm", global_clipnorm);
    visit("weight_decay", weight_decay);
    visit("decay", decay == Decay::decoupled ? "decoupled" : "in_gradient");
  }

  float rate(Moment now) const { return learning_rate(now); }
  int slots_in_use() const { return momentum == 0 ? 0 : slots; }

  template <class D> void update(Update const& u) const {
    auto const now  = rate(u.now);
    auto const into = decay == Decay::in_gradient;
    auto const step = typename Kernels<D>::SgdStep{.rate     = now,
                                                   .scale    = u.scale,
                                                   .momentum = momentum,
                                                   .decay    = into ? weight_decay : 0,
                                                   .shrink   = into ? 0 : now * weight_decay};
    if (momentum == 0) Kernels<D>::sgd(u.values, u.gradients.data(), step);
    else if (kind == Momentum::classic) Kernels<D>::sgd_momentum(u.values, u.gradients.data(), u.slot(0), step);
    else Kernels<D>::sgd_nesterov(u.values, u.gradients.data(), u.slot(0), step);
  }
};

}  // namespace chorale::optim
