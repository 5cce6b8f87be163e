// SPDX-License-Identifier: Apache-2.0
//
// A game: a pole stands on a cart, which is pushed to the left or to the right in each step so that it does not fall.
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace example {

/// CartPole-v1 of Gym: numbers, steps of Euler's method and ends are those. All of it is a function of seed and number.
///
/// source    Barto, Sutton & Anderson, 1983; gymnasium.envs.classic_control.CartPoleEnv
class CartPole {
 public:
  enum class End { no, fell, time };  // time: it stood for 500 steps
  static constexpr int most_steps = 500;

  /// number    of the cart: each has its own games
  CartPole(chorale::Seed seed, std::uint64_t number) : seed_{seed}, number_{number} { begin(); }

  /// Begins the next game, near the middle.
  void begin() {
    auto const draws = chorale::Random{seed_, number_ << 32 | game_++};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = draws.uniform(i, -0.05F, 0.05F);
    steps_ = 0;
  }

  /// Pushes the cart for 20 ms.
  End push(bool right) {
    constexpr float gravity = 9.8F, cart = 1.0F, pole = 0.1F, half_length = 0.5F, force = 10.0F, seconds = 0.02F;
    auto& [x, speed, angle, turning] = state;
    auto const cosine = std::cos(angle), sine = std::sin(angle);
    auto const push = ((right ? force : -force) + pole * half_length * turning * turning * sine) / (cart + pole);
    auto const turn =
        (gravity * sine - cosine * push) / (half_length * (4.0F / 3.0F - pole * cosine * cosine / (cart + pole)));
    auto const speeds_up = push - pole * half_length * turn * cosine / (cart + pole);
    x += seconds * speed, speed += seconds * speeds_up;
    angle += seconds * turning, turning += seconds * turn;
    if (std::abs(x) > 2.4F || std::abs(angle) > 12 * std::numbers::pi_v<float> / 180) return End::fell;
    return ++steps_ == most_steps ? End::time : End::no;
  }

  /// A random number in [0, 1) for what a player decides.
  float draw() { return chorale::Random{seed_, ~number_}.uniform(draws_++); }

  std::array<float, 4> state{};  // place, speed, angle, its speed

 private:
  chorale::Seed seed_;
  std::uint64_t number_, game_ = 0, draws_ = 0;
  int steps_ = 0;
};

/// Carts with the numbers of a range, such as those that one replica plays with.
inline std::vector<CartPole> carts(chorale::Seed seed, chorale::Range numbers) {
  auto all = std::vector<CartPole>{};
  for (auto i = numbers.begin; i < numbers.end; ++i) all.emplace_back(seed, i);
  return all;
}

/// The states of all carts: (carts, 4).
inline std::vector<float> states_of(std::vector<CartPole> const& carts) {
  auto all = std::vector<float>{};
  for (auto const& cart : carts) all.insert(all.end(), cart.state.begin(), cart.state.end());
  return all;
}

/// Plays one game with each cart, in which the action with the larger logit is taken.
///
/// predict   (carts, 4) -> (carts, 3): logits of both actions, and a number that is not used
/// returns   the sum of their steps
template <class Predict> chorale::Sum<float> play(std::vector<CartPole> carts, Predict&& predict) {
  auto over  = std::vector<char>(carts.size());
  auto steps = chorale::Sum<float>{0, static_cast<std::int64_t>(carts.size())};
  for (int t = 0; t < CartPole::most_steps && std::ranges::count(over, 1) < steps.count; ++t) {
    auto const y = predict(states_of(carts));
    for (std::size_t k = 0; k < carts.size(); ++k) {
      if (over[k] != 0) continue;
      steps.value += 1;
      over[k] = carts[k].push(y[3 * k + 1] > y[3 * k]) == CartPole::End::no ? 0 : 1;
    }
  }
  return steps;
}

}  // namespace example
