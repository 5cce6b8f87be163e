// SPDX-License-Identifier: Apache-2.0
//
// A policy gradient: an agent learns to balance a pole on a cart by trying. Each replica plays with its own carts, the
// rows of a step are what its agent did, and the weight of a row is how much better that went than expected. Gradients
// are combined by the strategy, so that replicas learn from the carts of all.
//
//   tools/run 19_cart_pole
//
// Expect the mean steps of 100 games, until it is at least 490 of 500, then that of 100 others: above 475 it is solved
#include <chorale/chorale.hpp>

#include "support/cart_pole.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace chorale;
using example::CartPole;

struct State : Field<float, 4> {};
struct Action : Field<int, 1> {};       // 1 pushes to the right
struct Return : Field<float, 1> {};     // rewards from now on, discounted
struct Advantage : Field<float, 1> {};  // what was better than expected; may be < 0

struct Agent : nn::Graph<State> {
  nn::Block<nn::Dense<64>, nn::Tanh, nn::Dense<2>> actor;   // logits of the actions
  nn::Block<nn::Dense<64>, nn::Tanh, nn::Dense<1>> critic;  // the return that it expects

  constexpr auto operator()(auto state) const { return nn::outputs<Action, Return>(actor(state), critic(state)); }
};

constexpr std::size_t length = 256, num_carts = 16, games = 100;  // steps of an update; carts of all replicas
constexpr float discount = 0.99F, reward = 1 - discount;          // so that returns are below 1
constexpr std::uint64_t first_seed = 1;

int main() try {
  auto const model = nn::compile<Agent>(
      nn::of<Action>(loss::SparseCrossEntropy{}).weighted_by(Advantage{}) + nn::of<Return>(loss::MeanSquaredError{}),
      optim::Adam{.learning_rate = 5e-3F});
  auto strategy = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto agents   = strategy.create(model, first_seed);
  auto played   = PerReplica<std::vector<CartPole>>(agents.size());  // carts, which go on from update to update

  auto const share_of = [](auto& replica, std::size_t n) { return share(n, replica.id(), replica.num_replicas()); };
  auto const learn    = [&](auto& replica, auto& agent, std::vector<CartPole>& mine) {
    if (mine.empty()) mine = example::carts(first_seed, share_of(replica, num_carts));
    auto const n = mine.size(), rows = n * length;  // row t n + k: step t of cart k
    auto states = std::vector<float>{}, values = states, returns = std::vector<float>(rows), advantages = returns;
    auto actions = std::vector<int>{};
    auto ends    = std::vector<CartPole::End>{};
    for (std::size_t t = 0; t <= length; ++t) {
      auto const now = example::states_of(mine);         // (n, 4)
      auto const y   = agent.predict(Rows<State>{now});  // (n, 3)
      for (std::size_t k = 0; k < n; ++k) values.push_back(y[3 * k + 2]);
      if (t == length) break;
      states.insert(states.end(), now.begin(), now.end());
      for (std::size_t k = 0; k < n; ++k) {
        actions.push_back(mine[k].draw() < 1 / (1 + std::exp(y[3 * k] - y[3 * k + 1])) ? 1 : 0);
        ends.push_back(mine[k].push(actions.back() == 1));
        if (ends.back() != CartPole::End::no) mine[k].begin();
      }
    }
    for (auto i = rows; i-- > 0;) {  // the last step first
      auto const later = ends[i] == CartPole::End::fell   ? 0
                            : ends[i] == CartPole::End::time ? values[i]  // it would have gone on
                            : i + n < rows                   ? returns[i + n]
                                                             : values[i + n];
      returns[i]       = reward + discount * later;
      advantages[i]    = returns[i] - values[i];
    }
    auto [loss, gradients] =
        replica.value_and_gradient(agent, Rows<State, Action, Return, Advantage>{states, actions, returns, advantages});
    strategy.update(replica, agent, gradients);
  };
  auto const mean_steps = [&](std::uint64_t seed_of_games) {
    return static_cast<double>(strategy
                                   .reduce(strategy.run(
                                       [&](auto& replica, auto& agent) {
                                         return example::play(
                                             example::carts(seed_of_games, share_of(replica, games)),
                                             [&](auto const& now) { return agent.predict(Rows<State>{now}); });
                                       },
                                       agents))
                                   .mean());
  };

  for (int update = 1, solved = 0; update <= 300 && solved == 0; ++update) {
    strategy.run(learn, agents, played);
    if (update % 10 != 0) continue;
    auto const steps = mean_steps(first_seed + 1);
    std::printf("%zu steps: mean %.1f of 500\n", static_cast<std::size_t>(update) * num_carts * length, steps);
    solved = steps >= 490 ? 1 : 0;
  }
  auto const steps = mean_steps(first_seed + 2);
  std::printf("100 other games: mean %.1f of 500\n", steps);
  return agents[0].hash() == agents[1].hash() && steps >= 475 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
