// SPDX-License-Identifier: Apache-2.0
//
// In place of the CUDA runtime: one device whose memory is the host's, and whose queues are always empty. With this the
// tests of test/cuda run on a machine without a GPU, against what the calls are documented to mean. What it cannot
// show: that a GPU does the same, that the order of queued work is right, and any number about time.
#include <chorale/tensor/ops_cuda.cuh>

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

constexpr std::size_t free_bytes = std::size_t{1} << 30;

struct Memory {
  std::mutex mutex;
  std::map<char const*, std::pair<std::size_t, cudaMemoryType>> blocks;

  cudaError_t take(void** p, std::size_t bytes, cudaMemoryType type) {
    if (bytes > free_bytes) return cudaErrorMemoryAllocation;
    *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(*p, 0xCD, bytes);                                          // no zeros, of which nothing could be seen
    auto const lock = std::lock_guard{mutex};
    blocks[static_cast<char const*>(*p)] = {bytes, type};
    return cudaSuccess;
  }
  cudaError_t give(void* p) {
    auto const lock = std::lock_guard{mutex};
    blocks.erase(static_cast<char const*>(p));
    std::free(p);
    return cudaSuccess;
  }
  cudaMemoryType type_of(void const* p) {
    auto const lock = std::lock_guard{mutex};
    auto after      = blocks.upper_bound(static_cast<char const*>(p));
    if (after == blocks.begin()) return cudaMemoryTypeUnregistered;
    auto const& [begin, block] = *--after;
    return static_cast<char const*>(p) < begin + block.first ? block.second : cudaMemoryTypeUnregistered;
  }
};

Memory& memory() {
  static auto& all = *new Memory;                                          // outlives whatever gives memory back at exit
  return all;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
char const* cudaGetErrorName(cudaError_t code) { return code == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "?"; }
char const* cudaGetErrorString(cudaError_t code) { return code == cudaErrorInvalidValue ? "invalid argument" : "?"; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) { return *p = {}, cudaSuccess; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) { return *free = *total = free_bytes, cudaSuccess; }
cudaError_t cudaMallocManaged(void** p, std::size_t n, unsigned) { return memory().take(p, n, cudaMemoryTypeManaged); }
cudaError_t cudaMalloc(void** p, std::size_t n) { return memory().take(p, n, cudaMemoryTypeDevice); }
cudaError_t cudaHostAlloc(void** p, std::size_t n, unsigned) { return memory().take(p, n, cudaMemoryTypeHost); }
cudaError_t cudaFree(void* p) { return memory().give(p); }
cudaError_t cudaFreeHost(void* p) { return memory().give(p); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* what, void const* p) {
  return *what = {}, what->type = memory().type_of(p), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int byte, std::size_t n, cudaStream_t) {
  return std::memset(p, byte, n), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t n, cudaMemcpyKind, cudaStream_t) {
  return std::memcpy(to, from, n), cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(std::malloc(1)), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return std::free(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(std::malloc(1)), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return std::free(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, cudaSuccess; }

}  // extern "C"
