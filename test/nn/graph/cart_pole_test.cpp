// SPDX-License-Identifier: Apache-2.0
//
// The game of examples/19_cart_pole.cpp against the numbers of Gym, and gradients of what replicas play by themselves.
#include "examples/support/cart_pole.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cart_pole_test {

using namespace chorale;
using example::CartPole;

namespace {

struct State : Field<float, 4> {};
struct Action : Field<int, 1> {};
struct Return : Field<float, 1> {};
struct Advantage : Field<float, 1> {};

struct Agent : nn::Graph<State> {
  nn::Block<nn::Dense<16>, nn::Tanh, nn::Dense<2>> actor;
  nn::Block<nn::Dense<16>, nn::Tanh, nn::Dense<1>> critic;

  constexpr auto operator()(auto state) const { return nn::outputs<Action, Return>(actor(state), critic(state)); }
};

using Batch = Rows<State, Action, Return, Advantage>;

auto agent() {
  return nn::compile<Agent>(
      nn::of<Action>(loss::SparseCrossEntropy{}).weighted_by(Advantage{}) + nn::of<Return>(loss::MeanSquaredError{}),
      optim::SGD{.learning_rate = 1});
}

/// What some carts do for 30 steps: cart after cart, so that the rows of several replicas are those of one, in order.
struct Played {
  std::vector<float> states, returns, advantages;
  std::vector<int> actions;

  Played(auto& copy, std::vector<CartPole> carts) {
    for (auto& cart : carts) {
      auto const first = actions.size();
      for (int t = 0; t < 30; ++t) {
        auto const y = copy.predict(Rows<State>{cart.state});
        states.insert(states.end(), cart.state.begin(), cart.state.end());
        actions.push_back(cart.draw() < 1 / (1 + std::exp(y[0] - y[1])) ? 1 : 0);
        returns.push_back(cart.push(actions.back() == 1) == CartPole::End::no ? 1.0F : 0.0F);
        advantages.push_back(-y[2]);
        if (returns.back() == 0) cart.begin();
      }
      for (auto i = actions.size() - 1; i-- > first;)
        if (returns[i] != 0) returns[i] += 0.9F * returns[i + 1];
      for (auto i = first; i < actions.size(); ++i) advantages[i] += returns[i] - 5;
    }
  }
  Batch rows() const { return Batch{states, actions, returns, advantages}; }
};

float largest_difference(Span<float const> a, Span<float const> b) {
  REQUIRE(a.size() == b.size());
  auto most = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("a cart moves as that of Gym", "[example]") {
  auto cart        = CartPole{Seed{1}, 0};
  cart.state       = {0.01F, -0.02F, 0.03F, 0.04F};
  auto const is_at = [&](std::vector<float> const& wanted) {  // of gymnasium 1.4.0, CartPole-v1
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(cart.state[i] - wanted[i]) < 2e-5F);
  };
  for (int t = 0; t < 30; ++t) {
    auto const angle = cart.state[2];
    CHECK(cart.push(angle > 0.02F || (angle >= -0.02F && t % 3 != 0)) == CartPole::End::no);
    if (t == 0) is_at({0.0096F, 0.17467920F, 0.0308F, -0.24306872F});
    if (t == 9) is_at({0.08780464F, -0.01809556F, -0.08176078F, -0.00201076F});
    if (t == 19) is_at({-0.04382108F, -0.40498897F, 0.09418257F, 0.51152101F});
  }
  cart.begin();
  cart.state = {0.01F, -0.02F, 0.03F, 0.04F};
  for (int t = 0; t < 9; ++t) CHECK(cart.push(true) == CartPole::End::no);
  CHECK(cart.push(true) == CartPole::End::fell);
  is_at({0.18148412F, 1.93306439F, -0.22356918F, -2.98408275F});
}

TEST_CASE("a game ends after 500 steps, and the next one begins near the middle", "[example]") {
  auto cart = CartPole{Seed{1}, 3}, same = CartPole{Seed{1}, 3}, other = CartPole{Seed{1}, 4};
  CHECK(cart.state == same.state);
  CHECK(cart.state != other.state);
  auto end = CartPole::End::no;
  for (int t = 0; t < 500; ++t) {
    CHECK(end == CartPole::End::no);
    cart.state = {};
    end        = cart.push(true);
  }
  CHECK(end == CartPole::End::time);
  cart.begin();
  CHECK(cart.state != same.state);
  for (auto const x : cart.state) CHECK(std::abs(x) <= 0.05F);
}

TEST_CASE("a row weighs what its field says, also below 0, and counts as one row", "[nn][graph][weights]") {
  auto copy     = agent().instantiate(Cpu::logical(1)[0], 2);
  auto played   = Played{copy, example::carts(Seed{5}, {0, 2})};
  auto const at = [&](std::vector<float> weights) {
    played.advantages = std::move(weights);
    auto const loss   = copy.value_and_gradient(played.rows(), 0, LooksAtEnd{});
    auto const g      = copy.gradients();
    CHECK(g.rows() == static_cast<float>(played.actions.size()));  // what sums are divided by, as in Keras
    auto all = std::vector<float>(g.body().begin(), g.body().end());
    all.push_back(loss.value);
    return all;
  };
  auto const n    = played.actions.size();
  auto const none = at(std::vector<float>(n)), ones = at(std::vector<float>(n, 1.0F));
  auto mixed = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) mixed[i] = i % 2 == 0 ? -2.0F : 3.0F;
  auto odd = std::vector<float>(n);
  for (std::size_t i = 1; i < n; i += 2) odd[i] = 1;
  auto const got = at(mixed), of_odd = at(odd);
  auto wanted = none;  // the loss is linear in the weights
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += -2 * (ones[i] - none[i]) + 5 * (of_odd[i] - none[i]);
  CHECK(largest_difference(ones, none) > 1);
  CHECK(largest_difference(got, wanted) < 1e-3F);
}

TEST_CASE("replicas that play by themselves have the gradient of one that plays with all carts", "[nn][graph][live]") {
  constexpr std::size_t carts = 7;
  auto const replicas         = GENERATE(1, 2, 3, 4);
  auto alone                  = agent().instantiate(Cpu::logical(1)[0], 2);
  auto const before = std::vector<float>(alone.net.variables().values.begin(), alone.net.variables().values.end());
  auto const all    = Played{alone, example::carts(Seed{5}, {0, carts})};
  CHECK(*std::ranges::min_element(all.advantages) < -1);
  CHECK(*std::ranges::max_element(all.advantages) > 1);
  auto const loss = alone.value_and_gradient(all.rows(), 0, LooksAtEnd{});
  alone.optimizer.apply(alone.net.variables(), alone.gradients());
  CHECK(largest_difference(alone.net.variables().values, before) > 0.1F);

  auto strategy     = Live{MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}};
  auto copies       = strategy.create(agent(), 2);
  auto const losses = strategy.run(
      [&](auto& replica, auto& copy) {
        auto const played = Played{copy, example::carts(Seed{5}, share(carts, replica.id(), replica.num_replicas()))};
        auto [sum, gradients] = replica.value_and_gradient(copy, played.rows());
        strategy.update(replica, copy, gradients);
        return sum;
      },
      copies);
  auto const sum = strategy.reduce(losses);
  CHECK(sum.count == loss.count);
  CHECK(std::abs(sum.mean() - loss.mean()) < 1e-4F);
  for (auto& copy : copies)
    CHECK(largest_difference(copy.net.variables().values, alone.net.variables().values) < 1e-5F);
}

}  // namespace cart_pole_test
