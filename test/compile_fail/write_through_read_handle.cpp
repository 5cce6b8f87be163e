// write_through_read_handle.cpp   expect: chorale: a ReadHandle only reads
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

void set(ReadHandle<float> rate) { rate.assign(0.1F); }
