// learner_of_one_argument.cpp   expect: chorale: the learner of a custom_model is a function of (step, batch)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Points       = BasicBatch<float, float>;
auto const loss_of = [](Points const& batch) { return static_cast<float>(batch.rows); };
auto const model   = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});
