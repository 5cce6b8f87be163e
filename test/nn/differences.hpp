// SPDX-License-Identifier: Apache-2.0
//
// A network's gradients against central differences of its loss.
#pragma once

#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

namespace chorale::test {

template <class Net, class Loss = loss::MeanSquaredError> void check_gradients() {
  auto const batch = tiny::batch<typename Loss::target>(5, Net::input::size, Loss::targets(Net::output::size));
  auto copy        = nn::compile<Net>(Loss{}, optim::SGD{}).instantiate(Cpu{}, 3);
  auto const loss  = [&] { return copy.value_and_gradient(batch.view(), 0, [](std::size_t) {}, Together{}).value; };

  loss();
  auto const got = std::vector<float>(copy.gradients().values.begin(), copy.gradients().values.end());
  for (std::size_t v = 0; v < copy.net.variables().size(); ++v) {
    if (!Net::plan.variables[v].spec.trained()) continue;
    auto const variable = copy.net.variables()[v];
    for (std::size_t i = 0; i < variable.value.size(); i += 1 + variable.value.size() / 7) {
      auto const keep   = variable.value[i];
      constexpr float h = 2e-3F;  // rounding 5e-7 / h; larger steps cross the kink of ReLU
      variable.value[i] = keep + h;
      auto const above  = loss();
      variable.value[i] = keep - h;
      auto const below  = loss();
      variable.value[i] = keep;
      INFO(variable.name << "[" << i << "]");
      CHECK(got[Net::plan.variables[v].offset + i] == Approx((above - below) / (2 * h)).epsilon(0.02).margin(2e-3));
    }
  }
}

}  // namespace chorale::test
