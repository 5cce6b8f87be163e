// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/optim/optimizer.hpp>

#include <cmath>

namespace chorale::optim {

namespace detail {

/// 1 / (1 - beta^t) after t updates, the one that begins now included: corrects a running mean that began with zero.
inline float correction(float beta, Moment const& now) {
  auto const t = static_cast<double>(now.step + 1);
  return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), t)));
}

template <class D, class O> void adam_update(O const& o, Update const& u, float decay) {
  Kernels<D>::adam(u.values, u.gradients.data(), u.slot(0), u.slot(1),
                   {.rate      = o.rate(u.now),
                    .scale     = u.scale,
                    .beta_1    = o.beta_1,
                    .beta_2    = o.beta_2,
                    .epsilon   = o.epsilon,
                    .decay     = decay,
                    .correct_1 = correction(o.beta_1, u.now),
                    .correct_2 = correction(o.beta_2, u.now)});
}

}  // namespace detail

/// w -= rate · m̂ / (sqrt(v̂) + epsilon), with m̂, v̂ the corrected running means of g and g².
///
/// source  Kingma & Ba, ICLR 2015, algorithm 1; defaults of tf.keras.optimizers.Adam
struct Adam {
  static constexpr int slots   = 2;
  static constexpr bool queues = true;

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

  template <class D> void update(Update const& u) const { detail::adam_update<D>(*this, u, 0); }
};

/// Adam with weight decay: each step also shrinks w by rate · weight_decay, independently of the gradient.
///
/// source  Loshchilov & Hutter, ICLR 2019; tf.keras.optimizers.AdamW
struct AdamW {
  static constexpr int slots   = 2;
  static constexpr bool queues = true;

  Rate learning_rate    = 1e-3F;
  float weight_decay    = 4e-3F;
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

  template <class D> void update(Update const& u) const {
    detail::adam_update<D>(*this, u, rate(u.now) * weight_decay);
  }
};

}  // namespace chorale::optim
