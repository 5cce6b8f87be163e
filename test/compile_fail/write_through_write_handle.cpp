// write_through_write_handle.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

void set(WriteHandle<float> rate) { rate.assign(0.1F); }
