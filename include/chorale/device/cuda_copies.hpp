// SPDX-License-Identifier: Apache-2.0
//
// Optional, like cuda.hpp; empty where the compiler does not find CUDA.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/device/device.hpp>

#include <cstddef>
#include <memory>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>

namespace chorale {

/// Copies messages between a GPU's memory and a transport that only reads the host's.
///
///   Trainer{model, MirroredStrategy{Cuda::visible()}, RingAllReduce{}, Staged<TcpTransport, CudaCopies>{}}
///
/// cost    one copy over the bus, from or to pinned memory, and a wait for it
struct CudaCopies {
  /// Host memory that a device reads and writes at the full speed of the bus.
  class block {
   public:
    block() = default;
    explicit block(std::size_t bytes) {
      void* memory = nullptr;
      if (bytes != 0) cuda::expect(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
      data_.reset(static_cast<std::byte*>(memory));
    }
    std::byte* data() const { return data_.get(); }

   private:
    struct Free {
      void operator()(std::byte* p) const { static_cast<void>(cudaFreeHost(p)); }
    };
    std::unique_ptr<std::byte, Free> data_;
  };

  static constexpr Memory memory = Memory::cuda;

  /// True if `address` is in memory of a device or in managed memory; false without a device.
  static bool holds(std::byte const* address) {
    auto what = cudaPointerAttributes{};
    if (cudaPointerGetAttributes(&what, address) == cudaSuccess)
      return what.type == cudaMemoryTypeDevice || what.type == cudaMemoryTypeManaged;
    static_cast<void>(cudaGetLastError());
    return false;
  }

  static block allocate(std::size_t bytes) { return block{bytes}; }
  static void to_host(Bytes to, ConstBytes from) { copy(to.data(), from.data(), from.size()); }
  static void from_host(Bytes to, ConstBytes from) { copy(to.data(), from.data(), from.size()); }

 private:
  static void copy(void* to, void const* from, std::size_t bytes) {
    cuda::copy(to, from, bytes);
    cuda::expect(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
  }
};

}  // namespace chorale

#endif
