// SPDX-License-Identifier: Apache-2.0
//
// The GPU of this machine, for the tests that need one.
#pragma once

#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_copies.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/staged.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace chorale::test {

/// Nothing, and a line that says that the test was skipped and why, where there is no GPU:
///   auto const gpu = gpu_or_skip("the name of this test");
///   if (!gpu) return;
inline std::optional<Cuda> gpu_or_skip(std::string const& test) {
  auto const devices = Cuda::visible();
  if (!devices.empty()) return devices.front();
  std::printf("SKIPPED: %s: %s\n", test.c_str(), Cuda::missing().c_str());
  return {};
}

/// The same where there are less than two.
inline std::vector<Cuda> two_gpus_or_skip(std::string const& test) {
  auto devices = Cuda::visible();
  if (devices.size() >= 2) return {devices[0], devices[1]};
  std::printf("SKIPPED: %s: %s\n", test.c_str(), devices.empty() ? Cuda::missing().c_str() : "there is one device");
  return {};
}

/// Any reduce between GPUs of this process.
inline auto through_host() { return Staged<LocalTransport, CudaCopies>{}; }

}  // namespace chorale::test
