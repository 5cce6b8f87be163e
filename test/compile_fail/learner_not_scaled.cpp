// learner_not_scaled.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});
