// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links the CUDA runtime.
#pragma once

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_CUDA)
#error "chorale: this header is of the component cuda. Try: add chorale::cuda to target_link_libraries()"
#endif

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/device/device.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>

namespace chorale {

/// One NVIDIA GPU, by its number among the GPUs that this process may see.
///
///   MirroredStrategy{Cuda::all()}                   every GPU
///   MirroredStrategy{std::vector{Cuda{0}, Cuda{2}}} these
///   OneDeviceStrategy{Cuda{0}.replaying()}          the first, with steps that are recorded and replayed
///
/// keeps   a value, cheap to copy
/// order   each thread has its own queue on each device: the work of one thread is ordered, and threads do not wait for
///         one another
/// cost    the first use of a device in a process: some 300 ms and 300 MB of its memory, for CUDA's context
class Cuda {
 public:
  static constexpr Memory memory = Memory::cuda;

  /// Memory that the device and the host both read and write, zero at first, aligned to 256 bytes.
  ///
  /// cost    CUDA moves a page to the side that touches it: some 20 us a page, each way. So the host should touch no
  ///         more than the headers of gradients in every step. A block is never larger than the device's free memory
  /// order   the host must not read while queued work still writes: synchronize() first
  class block {
   public:
    block() = default;
    explicit block(std::size_t bytes) : size_{bytes} {
      if (bytes == 0) return;
      expect_shared();
      std::size_t free = 0, total = 0;
      cuda::expect(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      if (bytes > free)
        throw OutOfMemory{"the device has " + std::to_string(free) + " of " + std::to_string(total) +
                              " bytes free, but one block needs " + std::to_string(bytes) + ".",
                          "a smaller batch or model, or a device that nobody else uses."};
      void* memory = nullptr;
      cuda::expect(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
      data_.reset(static_cast<std::byte*>(memory));
      cuda::expect(cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread), "cudaMemsetAsync");
      cuda::expect(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
    }

    std::byte* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

   private:
    struct Free {
      void operator()(std::byte* p) const { static_cast<void>(cudaFree(p)); }
    };

    /// Throws an Error unless the host may read one block while a kernel works on another.
    static void expect_shared() {
      int device = 0, shared = 0;
      cuda::expect(cudaGetDevice(&device), "cudaGetDevice");
      cuda::expect(cudaDeviceGetAttribute(&shared, cudaDevAttrConcurrentManagedAccess, device),
                   "cudaDeviceGetAttribute");
      if (shared == 0)
        throw Error{"device " + std::to_string(device) + " does not share managed memory with the host at one time.",
                    "Linux without a layer of Windows or a virtual GPU, or Cpu."};
    }

    std::unique_ptr<std::byte, Free> data_;
    std::size_t size_ = 0;
  };

  /// throws  BadArgument when no device has that number, or none exists at all
  explicit Cuda(int index = 0) : index_{index} {
    auto const n = count();
    if (n == 0)
      throw BadArgument{missing(), "a machine with an NVIDIA GPU and its driver, CUDA_VISIBLE_DEVICES, or Cpu."};
    CHORALE_EXPECTS(index >= 0 && index < n, "there is no device " + std::to_string(index) + " among the " +
                                                 std::to_string(n) + " that this process may use");
  }

  /// All devices that this process may use; none on a machine without a GPU, and missing() then returns the reason.
  static std::vector<Cuda> visible() {
    auto devices = std::vector<Cuda>{};
    for (int i = 0, n = count(); i < n; ++i) devices.emplace_back(i);
    return devices;
  }

  /// All devices that this process may use, at least one.
  ///
  /// throws  BadArgument with the reason if there is none
  static std::vector<Cuda> all() {
    auto devices = visible();
    if (devices.empty()) devices.emplace_back();  // throws
    return devices;
  }

  /// The reason why no device is available, as a sentence; empty if one is.
  static std::string missing() {
    int n           = 0;
    auto const code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess && n > 0) return {};
    static_cast<void>(cudaGetLastError());  // it is reported here
    return "this program was built with CUDA, but there is no device: cudaGetDeviceCount said " +
           (code == cudaSuccess ? std::string{"0"} : cuda::text_of(code)) + ".";
  }

  int index() const { return index_; }

  /// This GPU with replay: forward, loss and backward are recorded as one CUDA graph for each number of rows, in
  /// the second step with that number, and replayed from then on. The first step allocates, which cannot be recorded.
  ///
  /// cost    one launch a step instead of one a kernel. Buckets of gradients are sent when all of backward is done
  /// throws  from the step: BadArgument with SyncBatchNorm over several replicas, which accumulate on the host in the
  ///         middle of the step; Error when a user's layer does something that cannot be recorded. See cuda::Graph
  Cuda replaying() const {
    auto same     = *this;
    same.replays_ = true;
    return same;
  }
  bool replays() const { return replays_; }

  /// Name and size of the GPU: "NVIDIA H200, 132 processors, 139 GiB".
  std::string name() const {
    auto properties = cudaDeviceProp{};
    cuda::expect(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties");
    return std::string{properties.name} + ", " + std::to_string(properties.multiProcessorCount) + " processors, " +
           std::to_string(properties.totalGlobalMem >> 30) + " GiB";
  }

  block allocate(std::size_t bytes) const {
    auto const here = Scope{*this};
    return block{bytes};
  }

  /// Keeps the pages of a part of a block, which the host touches in every step, in the host's memory: the device reads
  /// and writes them over the bus, in place of one move of a page each way.
  void keep_near_host(std::byte const* part, std::size_t bytes) const {
#if CUDART_VERSION >= 13000
    auto const host   = cudaMemLocation{cudaMemLocationTypeHost, {}};
    auto const device = cudaMemLocation{cudaMemLocationTypeDevice, index_};
#else
    auto const host = cudaCpuDeviceId, device = index_;
#endif
    cuda::expect(cudaMemAdvise(part, bytes, cudaMemAdviseSetPreferredLocation, host), "cudaMemAdvise");
    cuda::expect(cudaMemAdvise(part, bytes, cudaMemAdviseSetAccessedBy, device), "cudaMemAdvise");
  }

  /// Enables direct copies between these devices over NVLink or PCIe, where the machine connects them; other copies
  /// still go through the host.
  static void connect(std::vector<Cuda> const& devices) {
    for (auto const& from : devices)
      for (auto const& to : devices) {
        int reaches = 0;
        if (from.index_ == to.index_) continue;
        cuda::expect(cudaDeviceCanAccessPeer(&reaches, from.index_, to.index_), "cudaDeviceCanAccessPeer");
        if (reaches == 0) continue;
        auto const here = Scope{from};
        auto const code = cudaDeviceEnablePeerAccess(to.index_, 0);
        if (code == cudaErrorPeerAccessAlreadyEnabled) static_cast<void>(cudaGetLastError());
        else cuda::expect(code, "cudaDeviceEnablePeerAccess");
      }
  }

  /// Returns when the work of all threads on this device is done.
  void synchronize() const {
    auto const here = Scope{*this};
    cuda::expect(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  /// Makes the calling thread compute on this device while the object lives. If that fails, the next launch throws.
  class Scope {
   public:
    explicit Scope(Cuda const& device) noexcept {
      if (cudaGetDevice(&before_) != cudaSuccess) before_ = device.index_;
      if (before_ != device.index_) static_cast<void>(cudaSetDevice(device.index_));
      else before_ = none;
    }
    ~Scope() {
      if (before_ != none) static_cast<void>(cudaSetDevice(before_));
    }
    Scope(Scope const&)            = delete;
    Scope& operator=(Scope const&) = delete;

   private:
    static constexpr int none = -1;
    int before_               = none;
  };

 private:
  static int count() {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    static_cast<void>(cudaGetLastError());  // missing() reports it
    return 0;
  }

  int index_;
  bool replays_ = false;
};

static_assert(Device<Cuda>);

}  // namespace chorale

#else

namespace chorale {

/// Stand-in for Cuda where the compiler does not find CUDA: a program that uses it does not compile.
template <class Program = void> struct Cuda {
  static_assert(sizeof(Program*) == 0,
                "chorale: Cuda needs <cuda_runtime_api.h>, which the compiler does not find. "
                "Install the CUDA toolkit and add its include folder, or use Cpu");
};

}  // namespace chorale

#endif
