// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/optim/averaged.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace chorale {

/// Calls f while all variables are their moving averages, which optim::Averaged keeps, and then puts back the bits of the
/// variables, also when f throws. Every process of the job calls it, between steps.
///
///   auto const scores = with_averages(trainer, [&] { return trainer.evaluate(test); });
///   with_averages(trainer, [&] { trainer.save("averaged.safetensors"); });
///
/// trainer   a Trainer, or another object whose copies() are the copies of the model in this process
/// returns   what f returns
/// throws    BadArgument under ParameterServerStrategy, whose servers have the averages
template <class T, class F> decltype(auto) with_averages(T& trainer, F&& f) {
  using Copy = std::remove_cvref_t<decltype(*trainer.copies().begin())>;
  static_assert(
      requires(Copy& copy) { copy.optimizer.put_averages(copy.net.variables()); },
      "chorale: with_averages needs an optimizer that keeps moving averages: optim::Averaged{optimizer}");
  struct PutsBack {
    explicit PutsBack(T& of) : trainer{&of} {
      for (auto& copy : of.copies()) {
        auto const now = copy.net.variables().values;
        own.emplace_back(now.begin(), now.end());
      }
    }
    PutsBack(PutsBack const&)            = delete;
    PutsBack& operator=(PutsBack const&) = delete;
    ~PutsBack() {
      auto from = own.begin();
      for (auto& copy : trainer->copies()) std::ranges::copy(*from++, copy.net.variables().values.begin());
    }

    T* trainer;
    std::vector<std::vector<float>> own;
  };
  auto const puts_back = PutsBack{trainer};
  if constexpr (requires(Copy& copy) { copy.optimizer.put_averages(copy.net.variables()); })
    for (auto& copy : trainer.copies()) copy.optimizer.put_averages(copy.net.variables());
  return f();
}

}  // namespace chorale
