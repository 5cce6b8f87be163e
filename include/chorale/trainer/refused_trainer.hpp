// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/model.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/options.hpp>

namespace chorale {

/// A trainer whose parts do not fit together: its constructor fails to compile with one sentence that says why. That
/// of trainer.hpp is for all others.
///
/// keeps   its functions take anything, so that a program which calls them gets no second error
template <class M, class S, class R, class T>
class Trainer {
 public:
  Trainer(M, S, R = {}, T = {}, Seed = {}, MemoryBudget = {}) {
    static_assert(sizeof(Live<S, R, T>) > 0);                              // reports parts that do not fit together
    static_assert(!Strategy<S> || ModelOn<M, typename detail::DeviceOf<S>::type>,
                  "chorale: the model argument is not a Model. It needs batch, metric_names, plan, optimizer and "
                  "instantiate(device, seed). See nn::compile and custom_model");
  }

  History     fit(auto&&...);
  Scores      evaluate(auto&&...);
  Predictions predict(auto&&...);
  void        save(auto&&...);
  void        load(auto&&...);
};

}  // namespace chorale
