// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <concepts>
#include <cstddef>
#include <vector>

namespace chorale {

/// The memory that a kernel, or a transport, can read and write.
enum class Memory { host, cuda };

/// One place that computes: a memory, and a queue of work over it. See Cpu.
template <class D>
concept Device = requires(D device, std::size_t bytes) {
  { D::memory } -> std::convertible_to<Memory>;                   // the memory that its kernels use
  { D::visible() } -> std::same_as<std::vector<D>>;               // all devices that this process may use
  { device.allocate(bytes) } -> std::same_as<typename D::block>;  // owns its bytes; throws OutOfMemory
  { device.synchronize() } -> std::same_as<void>;                 // returns when queued work is done
};

/// Replicas that compute on a device: one, or as many as it says, among which it divides its rows.
template <Device D> int replicas_on(D const& device) {
  if constexpr (requires {
                  { device.num_replicas() } -> std::same_as<int>;
                })
    return device.num_replicas();
  else return 1;
}
template <Device D> int replicas_on(std::vector<D> const& devices) {
  auto sum = 0;
  for (auto const& device : devices) sum += replicas_on(device);
  return sum;
}

}  // namespace chorale
