// SPDX-License-Identifier: Apache-2.0
//
// Queues of the stand-in for CUDA. What is put into one runs when somebody waits for it, and not before: a host that
// reads too early finds old numbers, as it may on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>

namespace stand_in {

/// Of all that the stand-in knows. Work runs under it.
std::recursive_mutex& mutex();

/// Puts work at the end of a queue, or into the graph that is recorded from it. Other queues may be behind by then.
void put(cudaStream_t queue, std::function<void()> work);

/// The same for work that may have to wait for other queues: it says whether it is done, and is called until it is.
void put_until(cudaStream_t queue, std::function<bool()> work);

}  // namespace stand_in
