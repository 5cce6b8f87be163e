// SPDX-License-Identifier: Apache-2.0
//
// Error codes of the CUDA runtime as errors of this library; empty where the compiler does not find CUDA.
#pragma once

#include <chorale/core/error.hpp>

#include <string>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>

namespace chorale::cuda {

/// Name and text of an error code: "cudaErrorInvalidValue, invalid argument".
inline std::string text_of(cudaError_t code) {
  return std::string{cudaGetErrorName(code)} + ", " + cudaGetErrorString(code);
}

/// Place of a call in the source: "cuda.hpp:41".
inline std::string place_of(char const* path, int line) {
  auto const file = std::string{path};
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(line);
}

/// Throws unless `code` is cudaSuccess. An error comes from this call, or from a kernel that was queued before.
///
/// call    as it is written: "cudaMemcpyAsync"
/// throws  OutOfMemory when the device had no memory left; Error for every other code
inline void expect(cudaError_t code, std::string const& call, char const* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (code == cudaSuccess) return;
  auto const said = call + " (" + place_of(file, line) + ") said " + text_of(code) + ".";
  switch (code) {
    case cudaErrorMemoryAllocation:
      throw OutOfMemory{said, "a smaller batch or model, or a device that nobody else uses."};
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      throw Error{said, "a machine with an NVIDIA GPU and a driver for this CUDA, or Cpu in place of Cuda."};
    case cudaErrorNoKernelImageForDevice:
      throw Error{said, "nvcc with the -arch of this device: the program has no code for it."};
    default:
      throw Error{said, "CUDA_LAUNCH_BLOCKING=1, which shows the kernel that failed, or compute-sanitizer."};
  }
}

}  // namespace chorale::cuda

#endif
