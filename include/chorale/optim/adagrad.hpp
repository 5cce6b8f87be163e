// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/optim/optimizer.hpp>

#include <cmath>
#include <cstddef>

namespace chorale::optim {

/// s += g²; w -= rate · g / sqrt(s + epsilon), where s begins at `initial_accumulator`. For embeddings: what a row has
/// seen so far decides how far it moves. On CPUs.
///
/// source  Duchi, Hazan & Singer, JMLR 2011; tf.keras.optimizers.Adagrad, with its defaults
struct Adagrad {
  static constexpr int slots = 1;  // s without its first value

  Rate learning_rate        = 1e-3F;
  float initial_accumulator = 0.1F;
  float epsilon             = 1e-7F;
  float global_clipnorm     = 0;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("learning_rate", learning_rate);
    visit("initial_accumulator", initial_accumulator);
    visit("epsilon", epsilon);
    visit("global_clipnorm", global_clipnorm);
  }

  float rate(Moment now) const { return learning_rate(now); }

  template <class D> void update(Update const& u) const {
    static_assert(D::memory == Memory::host, "chorale: optim::Adagrad runs on CPUs only. On a GPU use optim::Adam");
    auto* const w               = u.values.data();
    auto* const s               = u.slot(0);
    auto const* const gradients = u.gradients.data();
    auto const begin = initial_accumulator + epsilon, step = rate(u.now);
    for (std::size_t i = 0; i < u.values.size(); ++i) {
      auto const g = gradients[i] * u.scale;
      s[i] += g * g;
      w[i] -= step * g / std::sqrt(s[i] + begin);
    }
  }
};

}  // namespace chorale::optim
