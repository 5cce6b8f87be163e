// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of one replica share on a GPU; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)
#include <cublasLt.h>
#include <cudnn.h>

namespace chorale::cuda {

/// The queue of the calling thread on its device. All kernels are queued there.
inline cudaStream_t queue() { return cudaStreamPerThread; }

inline void expect(cublasStatus_t code, std::string const& call, char const* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (code != CUBLAS_STATUS_SUCCESS)
    throw Error{call + " (" + place_of(file, line) + ") said " + cublasLtGetStatusName(code) + ".",
                "CUBLASLT_LOG_LEVEL=2, which says why; a device with more free memory."};
}

inline void expect(cudnnStatus_t code, std::string const& call, char const* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (code != CUDNN_STATUS_SUCCESS)
    throw Error{call + " (" + place_of(file, line) + ") said " + cudnnGetErrorString(code) + ".",
                "CUDNN_LOGLEVEL_DBG=2, which says why; a device with more free memory."};
}

/// Bytes of n elements.
constexpr std::size_t bytes_of(std::size_t n, Elements of) { return n * (of == Elements::f32 ? 4 : 2); }

/// How one activation is stored: always plain, channels last. Rows of numbers have one pixel.
struct Layout {
  int rows = 0, height = 1, width = 1, channels = 0;
  Elements of = Elements::f32;

  std::size_t pixels() const { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(height * width); }
  std::size_t size() const { return pixels() * static_cast<std::size_t>(channels); }
  std::size_t bytes() const { return bytes_of(size(), of); }

  bool operator==(Layout const&) const = default;

  /// The activation of this layout at that address.
  launch::Values at(void const* memory) const { return {const_cast<void*>(memory), of}; }
};

/// Cuts one block of workspace into pieces aligned to 256 bytes, as cuDNN prefers. Without a base it only adds up what
/// is needed; with one it returns the pieces.
class Cutter {
 public:
  /// base    aligned to 64 bytes
  explicit Cutter(std::byte* base = nullptr)
      : base_{base == nullptr ? nullptr : base + (256 - reinterpret_cast<std::uintptr_t>(base) % 256) % 256} {}

  std::byte* take(std::size_t bytes) {
    auto* const piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    return piece;
  }
  std::byte* take_values(std::size_t n, Elements of) { return take(bytes_of(n, of)); }
  float* take_floats(std::size_t n) { return reinterpret_cast<float*>(take(n * sizeof(float))); }
  template <class T> T* take_some(std::size_t n) { return reinterpret_cast<T*>(take(n * sizeof(T))); }
  std::size_t used() const { return used_ == 0 ? 0 : used_ + 192; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// The libraries' handles, scratch memory for products, and device memory for a batch that comes from the host.
///
/// keeps   belongs to the device on which it was made, and to one thread at a time
class Runtime {
 public:
  static constexpr std::size_t product_bytes = std::size_t{32} << 20;  // what cuBLAS advises for sm_90

  Runtime() {
    cublasLtHandle_t products = nullptr;
    expect(cublasLtCreate(&products), "cublasLtCreate");
    products_.reset(products);
    cudnnHandle_t images = nullptr;
    expect(cudnnCreate(&images), "cudnnCreate");
    images_.reset(images);
    expect(cudnnSetStream(images, queue()), "cudnnSetStream");
  }

  cublasLtHandle_t products() const { return products_.get(); }
  cudnnHandle_t images() const { return images_.get(); }
  void* product_scratch() { return scratch_.take(product_bytes); }

  Products rounds_to   = Products::f32;  // both are set before kernels are made
  Elements activations = Elements::f32;

  /// Copies an input of a batch to the device, in the queue: for one number of rows always to the same address.
  ///
  /// input   its number
  /// x       of the host or of any device; it lives until synchronize()
  std::byte* fetch(std::size_t input, void const* x, std::size_t bytes) {
    if (inputs_.size() <= input) inputs_.resize(input + 1);
    return inputs_[input].fetch(static_cast<std::byte const*>(x), bytes);
  }

  /// Returns when the work that this thread has queued is done: the host may read its results.
  void synchronize() const { expect(cudaStreamSynchronize(queue()), "cudaStreamSynchronize"); }

  /// Asks the kernel that writes y to apply a ReLU in place. Stages are bound from the last one, so it asks in time.
  void ask_relu(float const* y) { relus_.push_back({y}); }
  /// Passes of a ReLU that the kernel of y takes: forward alone, or both, if the kernel remembers where y is 0.
  enum class Takes { y, both };
  /// Takes the ReLU asked for; called by the kernel that writes y last. Returns 1 if it must write max(y, 0), else 0.
  int take_relu(float const* y, Takes what = Takes::y) {
    for (auto& relu : relus_)
      if (relu.y == y && !relu.taken) return (relu.taken = true, relu.both = what == Takes::both, 1);
    return 0;
  }
  bool is_taken(float const* y, Takes what = Takes::y) const {
    return std::any_of(relus_.begin(), relus_.end(),
                       [=](Relu const& relu) { return relu.y == y && (what == Takes::both ? relu.both : relu.taken); });
  }

 private:
  struct Relu {
    float const* y;
    bool taken = false, both = false;
  };

  Owned<cublasLtHandle_t, cublasLtDestroy> products_;
  Owned<cudnnHandle_t, cudnnDestroy> images_;
  Room scratch_;
  std::vector<Room> inputs_;
  std::vector<Relu> relus_;
};

}  // namespace chorale::cuda

#endif
