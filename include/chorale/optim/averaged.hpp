// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/device.hpp>
#include <chorale/optim/grouped.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace chorale::optim {

/// An optimizer that also keeps the moving average of each variable: a = momentum a + (1 - momentum) w after each
/// update, from a = w after the first one. The averages change nothing in training; with_averages() puts them in place
/// of the variables, to evaluate or to save them. On CPUs.
///
/// keeps    the last slot of a variable is a - w, so that a variable without an update is its own average, and slots
///          begin with zeros. Averages of rows of a table that have no gradient rest
/// cost     a slot, and no further pass over the memory: variables are averaged block by block, as they are updated
/// source   use_ema of tf.keras.optimizers; Polyak & Juditsky, 1992
template <Optimizer O> struct Averaged : O {
  static_assert(!scales_loss<O> && !HasGroups<O>,
                "chorale: put optim::Averaged next to the optimizer, and others around it: "
                "optim::Grouped{optim::Averaged{optim::Adam{}}, groups}");

  static constexpr int slots   = O::slots + 1;
  static constexpr bool queues = false;

  /// of_averages    their momentum
  explicit Averaged(O const& rule, float of_averages = 0.99F) : O{rule}, average_momentum{of_averages} {
    CHORALE_EXPECTS(of_averages >= 0 && of_averages < 1,
                    "the momentum of optim::Averaged is from 0 to below 1, got " + number_text(of_averages));
  }

  float average_momentum;

  /// Calls visit(name, value) for each option, beginning with O's. Ranks compare these.
  void options(auto&& visit) const {
    if constexpr (NamesOptions<O>) {
      O::options(visit);
    } else {
      visit("learning_rate", this->rate(Moment{}));
      visit("global_clipnorm", static_cast<float>(this->global_clipnorm));
    }
    visit("average_momentum", average_momentum);
  }

  int slots_in_use() const { return slots; }

  template <class D> void update(Update const& u) const {
    constexpr auto block = std::size_t{16} << 10;  // 64 KiB of each array stay in a cache
    auto const n         = u.values.size();
    for (std::size_t begin = 0; begin < n; begin += block) {
      auto const size = std::min(block, n - begin);
      average<D>({u.values.subspan(begin, size), u.gradients.subspan(begin, size), u.slots.subspan(begin), u.scale,
                  u.now, u.stride == 0 ? n : u.stride},
                 [this](Update const& here) { O::template update<D>(here); });
    }
  }
  template <class D> void update_variable(Update const& u) const requires UpdatesByVariable<O> {
    average<D>(u, [this](Update const& all) { O::template update_variable<D>(all); });
  }

 private:
  template <class D, class F> void average(Update const& u, F&& apply) const {
    static_assert(D::memory == Memory::host,
                  "chorale: optim::Averaged runs on CPUs only. Use the optimizer that it "
                  "contains, or a strategy over Cpu");
    auto* const apart = u.slot(O::slots);
    auto const size   = u.values.size();
    for (std::size_t i = 0; i < size; ++i) apart[i] += u.values[i];  // the average
    apply(u);
    auto const keep = u.now.step == 0 ? 0.0F : average_momentum;
    for (std::size_t i = 0; i < size; ++i) apart[i] = detail::normal(keep * (apart[i] - u.values[i]));
  }
};

template <class O> inline constexpr bool keeps_averages = requires(O const& optimizer) { optimizer.average_momentum; };

}  // namespace chorale::optim
