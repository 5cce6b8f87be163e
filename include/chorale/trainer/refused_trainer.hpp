// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/model.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/missing_members.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale {

namespace detail {

/// The strategy of Trainer{model}.
struct NoStrategy {};

/// Refuses the arguments of a Trainer that are in the wrong place, or are none, with one sentence. Returns true if the
/// reason why they do not fit together is to be found in Live.
template <class M, class S, class R, class T> constexpr bool refuse_parts() {
  constexpr bool has_model   = ModelOn<M, typename DeviceOf<S>::type>;
  constexpr bool known       = std::is_same_v<M, RefusedModel> || LacksItsHeader<T>;  // said before
  constexpr bool no_strategy = std::is_same_v<S, NoStrategy>;
  constexpr bool turned      = Strategy<M> && !Strategy<S>;    // Trainer{strategy, model, ...}
  constexpr bool swapped     = Transport<R> && !Transport<T>;  // Trainer{model, strategy, transport, ..}
  constexpr bool network     = !has_model && requires { M::plan; } && !requires { typename M::batch; };
  constexpr bool data        = Dataset<M>;
  constexpr bool elsewhere   = requires { requires !M::template computes_on<typename S::device>; };
  static_assert(known || !no_strategy,
                "chorale: a Trainer needs a strategy after the model: Trainer{model, "
                "OneDeviceStrategy{Cpu{}}}, or MirroredStrategy{Cpu::split(2)}. See "
                "docs/42-strategies.md");
  static_assert(known || !turned,
                "chorale: the strategy argument is not a Strategy, and the first one is. Write "
                "Trainer{model, strategy, reduce, transport}");
  static_assert(known || !swapped,
                "chorale: the transport argument is not a Transport, and the one before it is. "
                "Write Trainer{model, strategy, reduce, transport}");
  static_assert(known || !network,
                "chorale: the model argument is not a Model, but a network. Write Trainer{"
                "nn::compile<Net>(loss, optimizer, metrics...), strategy, reduce, transport}");
  static_assert(known || !data,
                "chorale: the model argument is not a Model, but a dataset, which fit takes. Write "
                "Trainer{nn::compile<Net>(loss, optimizer, metrics...), strategy, reduce, transport}");
  if constexpr (!known && !no_strategy && !turned && !swapped && !network && !data) {
    static_assert(!elsewhere,
                  "chorale: this model computes on host memory, but the strategy computes on another "
                  "device. Use a strategy over Cpu");
    static_assert(!Strategy<S> || has_model || elsewhere || !fit_together<S, R, T>,
                  "chorale: the model argument is not a Model. It needs batch, metric_names, plan, optimizer and "
                  "instantiate(device, seed). See nn::compile and custom_model");
    if constexpr (!StrategyTraits<S>::template cuts<M>) S::template refuse<M>();
    return true;
  }
  return false;
}

}  // namespace detail

/// A trainer whose parts do not fit together: its constructor fails to compile with one sentence that says why. That
/// of trainer.hpp is for all others.
///
/// keeps   its functions take anything, so that a program which calls them gets no second error
template <class M, class S, class R, class T> class Trainer {
 public:
  Trainer(M, S = {}, R = {}, T = {}, Seed = {}, MemoryBudget = {}) {
    if constexpr (detail::refuse_parts<M, S, R, T>()) static_assert(sizeof(Live<S, R, T>) > 0);
  }

  template <class Data, class... More> History fit(Data&&, FitOptions const& = {}, More&&...) const;
  template <class Data, class Second, class... More> requires(!std::convertible_to<Second, FitOptions const&>)
  History fit(Data&&, Second&&, More&&...) const;
  Scores evaluate(auto&&...) const;
  Predictions predict(auto&&...) const;
  void save(auto&&...) const;
  void load(auto&&...) const;
  void stop();

  M const& model() const;
  Seed seed() const;
  int num_replicas() const;
  bool is_chief() const;
  std::uint64_t step() const;
  float learning_rate() const;
  void set_learning_rate(float);
  Variables variables() const;

  std::vector<std::uint64_t> hashes() const;
  std::vector<std::string> scalar_names() const;
};

}  // namespace chorale
