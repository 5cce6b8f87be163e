// SPDX-License-Identifier: Apache-2.0
//
// Error codes, queues, events, graphs and memory of a CUDA device; empty where the compiler does not find CUDA.
#pragma once

#include <chorale/core/error.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

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
    default: throw Error{said, "CUDA_LAUNCH_BLOCKING=1, which shows the kernel that failed, or compute-sanitizer."};
  }
}

/// Deleter that gives a CUDA handle back by `End`, whose result is ignored.
template <class Handle, auto End> struct EndBy {
  using pointer = Handle;
  void operator()(Handle handle) const { static_cast<void>(End(handle)); }
};
template <class Handle, auto End> using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, EndBy<Handle, End>>;

/// A CUDA event: a recorded point in a queue, with its time.
class Event {
 public:
  Event() {
    cudaEvent_t made = nullptr;
    expect(cudaEventCreate(&made), "cudaEventCreate");
    event_.reset(made);
  }

  void record(cudaStream_t queue) { expect(cudaEventRecord(event_.get(), queue), "cudaEventRecord"); }

  /// True if the queue has reached the recorded point.
  bool done() const {
    auto const code = cudaEventQuery(event_.get());
    if (code != cudaErrorNotReady) expect(code, "cudaEventQuery");
    return code == cudaSuccess;
  }
  void wait() const { expect(cudaEventSynchronize(event_.get()), "cudaEventSynchronize"); }

  /// Milliseconds on the device from the earlier event to this one; both are done.
  float since(Event const& earlier) const {
    auto ms = 0.0F;
    expect(cudaEventElapsedTime(&ms, earlier.event_.get(), event_.get()), "cudaEventElapsedTime");
    return ms;
  }

  cudaEvent_t get() const { return event_.get(); }

 private:
  Owned<cudaEvent_t, cudaEventDestroy> event_;
};

/// A separate queue on the current device, besides the one that each thread has.
class Stream {
 public:
  Stream() {
    cudaStream_t made = nullptr;
    expect(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    stream_.reset(made);
  }

  /// Lets work that is queued from now on begin only after that event.
  void follow(Event const& mark) { expect(cudaStreamWaitEvent(stream_.get(), mark.get(), 0), "cudaStreamWaitEvent"); }
  void synchronize() const { expect(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }

  cudaStream_t get() const { return stream_.get(); }

 private:
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
};

/// Work of one queue, recorded once and queued again as a whole: all of its kernels cost one launch.
///
/// keeps   the addresses and numbers that the work was recorded with
class Graph {
 public:
  explicit operator bool() const { return runs_ != nullptr; }

  /// Records the work that work() puts into the queue. None of it runs.
  ///
  /// throws  what work() throws; Error when work() did something that cannot be recorded: it allocated, waited, or
  ///         copied from or to memory of the host that is not pinned
  template <class Work> void record(cudaStream_t queue, Work&& work) {
    runs_.reset();
    expect(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      work();
    } catch (...) {
      end(queue);
      static_cast<void>(cudaGetLastError());  // the exception says more
      throw;
    }
    auto const [code, recorded] = end(queue);
    expect(code, "cudaStreamEndCapture");
    cudaGraphExec_t made = nullptr;
    expect(cudaGraphInstantiate(&made, recorded.get(), 0), "cudaGraphInstantiate");
    runs_.reset(made);
    expect(cudaGraphGetNodes(recorded.get(), nullptr, &nodes_), "cudaGraphGetNodes");
  }

  /// Number of kernels and copies in the graph.
  std::size_t nodes() const { return nodes_; }

  void launch(cudaStream_t queue) const { expect(cudaGraphLaunch(runs_.get(), queue), "cudaGraphLaunch"); }

 private:
  using Recorded = Owned<cudaGraph_t, cudaGraphDestroy>;

  static std::pair<cudaError_t, Recorded> end(cudaStream_t queue) {
    cudaGraph_t made = nullptr;
    auto const code  = cudaStreamEndCapture(queue, &made);
    return {code, Recorded{made}};
  }

  Owned<cudaGraphExec_t, cudaGraphExecDestroy> runs_;
  std::size_t nodes_ = 0;
};

/// Queues a copy between any two memories.
inline void copy(void* to, void const* from, std::size_t bytes, cudaStream_t queue = cudaStreamPerThread) {
  expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue), "cudaMemcpyAsync");
}

/// Growing memory of the current device, which the host does not read.
class Room {
 public:
  /// Copies n elements into this memory, in the queue of the calling thread; `from` may be any memory.
  template <class T> T* fetch(T const* from, std::size_t n) {
    auto* const here = static_cast<T*>(take(n * sizeof(T)));
    copy(here, from, n * sizeof(T));
    return here;
  }

  /// Returns memory of at least that many bytes. Its contents are lost when it has to grow.
  void* take(std::size_t bytes) {
    if (bytes <= size_) return memory_.get();
    void* made = nullptr;
    memory_.reset();  // cudaFree waits for queued work
    size_ = 0;
    expect(cudaMalloc(&made, bytes), "cudaMalloc");
    memory_.reset(made);
    size_ = bytes;
    return made;
  }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<void, EndBy<void*, cudaFree>> memory_;
  std::size_t size_ = 0;
};

}  // namespace chorale::cuda

#endif
