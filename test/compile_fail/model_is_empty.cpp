// model_is_empty.cpp   expect: chorale: the model argument is not a Model. It needs batch, metric_names, plan, optimizer
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Nothing {};
auto train() { return Trainer{Nothing{}, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}}; }
