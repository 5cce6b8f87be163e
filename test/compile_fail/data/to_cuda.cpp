// SPDX-License-Identifier: Apache-2.0
#include <chorale/data/dataset.hpp>
#include <chorale/data/stages/to_cuda.hpp>

#include <vector>

using namespace chorale;

auto const rows = data::from_tensors(std::vector<float>(8), std::vector<int>(8), 1);

// expect (with <cuda_runtime_api.h>): compiles
auto make(Cuda const& device) { return data::on_cuda(rows.batch(4), device); }

// expect (with <cuda_runtime_api.h>): chorale: on_cuda takes batches, not rows. Write .batch(n) before it
auto make(Cuda const& device) { return data::on_cuda(rows, device); }
