// SPDX-License-Identifier: Apache-2.0
//
// In place of the CUDA runtime: two devices whose memory is the host's, and whose queues run as late as they may. With
// this the tests of test/cuda run on a machine without a GPU, against what the calls are documented to mean. What it
// cannot show: that a GPU does the same, what kernels of several queues do to each other, and any number about time.
// In one piece, for all of it is one state.
#include "test/cuda/stand_in/queue.hpp"

#include <chorale/tensor/cuda/all.cuh>

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

/// Recursive, because work of one queue may wait for another queue.
std::recursive_mutex& stand_in::mutex() {
  static auto& one = *new std::recursive_mutex;  // outlives whatever frees memory at exit
  return one;
}

namespace {

constexpr std::size_t free_bytes = std::size_t{1} << 30;
constexpr int devices            = 2;

auto locked() { return std::lock_guard{stand_in::mutex()}; }

thread_local int device = 0;  // of this thread

using Work = std::function<bool()>;  // called until it is done

/// Memory of a device alone: a host that touches it ends by SIGSEGV, as with a GPU. It is closed after every 32nd time
/// that queues ran, because that takes longer than the work of many.
class DeviceMemory {
 public:
  void* take(std::size_t bytes) {
    auto const whole = (bytes + page - 1) / page * page;
    auto* const at   = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : (blocks_[at] = whole, at);
  }
  void give(void* at) {
    if (auto const block = blocks_.extract(at)) munmap(at, block.mapped());
  }
  void open() {
    if (open_++ == 0 && closed_) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--open_ == 0 && ++times_ % 32 == 0) protect(PROT_NONE);
  }

 private:
  static constexpr std::size_t page = 4096;

  void protect(int access) {
    closed_ = access == PROT_NONE;
    for (auto const& [at, bytes] : blocks_) mprotect(at, bytes, access);
  }

  std::map<void*, std::size_t> blocks_;
  std::uint64_t times_ = 0;
  int open_            = 0;
  bool closed_         = false;
};
DeviceMemory& device_memory() {
  static auto& one = *new DeviceMemory;
  return one;
}

}  // namespace

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

namespace {

struct Queue {
  std::deque<Work> waiting;
  std::uint64_t put = 0, done = 0;
  std::unique_ptr<CUgraph_st> recorded;  // while it is recorded, nothing waits
  bool broken  = false;                  // by what cannot be recorded
  bool running = false;
  int on       = device;

  /// As far as it gets; says whether that is the mark.
  bool run_to(std::uint64_t mark) {
    if (running) return done >= mark;
    running = true;
    device_memory().open();
    for (; done < mark && waiting.front()(); ++done) waiting.pop_front();
    device_memory().close();
    running = false;
    return done >= mark;
  }
};
using Shared = std::shared_ptr<Queue>;

std::vector<std::weak_ptr<Queue>>& all_queues() {
  static auto& all = *new std::vector<std::weak_ptr<Queue>>;
  return all;
}
Shared make_queue() {
  auto const lock  = locked();
  auto const queue = std::make_shared<Queue>();
  auto& all        = all_queues();
  all.erase(std::remove_if(all.begin(), all.end(), [](auto const& q) { return q.expired(); }), all.end());
  all.push_back(queue);
  return queue;
}
/// Runs the queues of all devices, or of one, as far as they get; says whether that is their end.
constexpr int all_devices = -1;
bool run_all(int of = all_devices) {
  auto const lock = locked();
  auto const all  = all_queues();
  auto ended      = true;
  for (auto const& one : all)
    if (auto const queue = one.lock(); queue && (of == all_devices || queue->on == of))
      ended = queue->run_to(queue->put) && ended;
  return ended;
}

/// Runs what there is until `ended` says so; other threads may have to put more.
template <class Ended> cudaError_t wait_until(Ended ended) {
  for (;; std::this_thread::yield()) {
    auto const lock = locked();
    if (ended()) return cudaSuccess;
    run_all();
  }
}

/// What a thread has under way.
struct Here {
  std::array<Shared, devices> queues;

  ~Here() {
    for (auto const& queue : queues)
      if (queue) wait_until([&] { return queue->run_to(queue->put); });
  }
};

Shared queue_of(cudaStream_t stream) {
  if (stream != cudaStreamPerThread) return *reinterpret_cast<Shared*>(stream);
  thread_local auto here = Here{};
  auto& mine             = here.queues[static_cast<std::size_t>(device)];
  return mine ? mine : mine = make_queue();
}

thread_local Queue* recording = nullptr;  // by this thread

/// What cannot be recorded ends the recording of whoever calls it in one.
bool refused() { return recording != nullptr && (recording->broken = true); }

struct Memory {
  std::map<char const*, std::pair<std::size_t, cudaMemoryType>> blocks;

  cudaError_t take(void** p, std::size_t bytes, cudaMemoryType type) {
    if (refused()) return cudaErrorStreamCaptureUnsupported;
    if (bytes > free_bytes) return cudaErrorMemoryAllocation;
    auto const lock = locked();
    device_memory().open();
    *p =
        type == cudaMemoryTypeDevice ? device_memory().take(bytes) : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(*p, 0xCD, bytes);  // no zeros, of which nothing could be seen
    device_memory().close();
    blocks[static_cast<char const*>(*p)] = {bytes, type};
    return cudaSuccess;
  }
  cudaError_t give(void* p) {
    if (refused()) return cudaErrorStreamCaptureUnsupported;
    wait_until([on = device] { return run_all(on); });  // cudaFree waits for the device
    auto const lock  = locked();
    auto const block = blocks.extract(static_cast<char const*>(p));
    if (block && block.mapped().second == cudaMemoryTypeDevice) device_memory().give(p);
    else std::free(p);
    return cudaSuccess;
  }
  cudaMemoryType type_of(void const* p) {
    auto const lock = locked();
    auto after      = blocks.upper_bound(static_cast<char const*>(p));
    if (after == blocks.begin()) return cudaMemoryTypeUnregistered;
    auto const& [begin, block] = *--after;
    return static_cast<char const*>(p) < begin + block.first ? block.second : cudaMemoryTypeUnregistered;
  }
};

Memory& memory() {
  static auto& all = *new Memory;
  return all;
}

}  // namespace

void stand_in::put(cudaStream_t stream, std::function<void()> work) {
  auto const lock  = locked();
  auto const queue = queue_of(stream);
  if (queue->recorded) return queue->recorded->work.push_back(std::move(work));
  put_until(stream, [work = std::move(work)] { return work(), true; });
}

void stand_in::put_until(cudaStream_t stream, std::function<bool()> work) {
  auto const lock  = locked();
  auto const queue = queue_of(stream);
  if (queue->recorded) {
    queue->broken = true;  // CUDA could; nobody here does
    return;
  }
  queue->waiting.push_back(std::move(work));
  ++queue->put;
}

struct CUevent_st {
  Shared queue;
  std::uint64_t mark = 0;
};

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) { return *n = devices, cudaSuccess; }
cudaError_t cudaGetDevice(int* here) { return *here = device, cudaSuccess; }
cudaError_t cudaSetDevice(int to) {
  if (to < 0 || to >= devices) return cudaErrorInvalidDevice;
  return device = to, cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* reaches, int from, int to) {
  return *reaches = from != to ? 1 : 0, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int to, unsigned flags) {
  static bool enabled[devices][devices]{};
  auto const lock = locked();
  if (to < 0 || to >= devices || to == device || flags != 0) return cudaErrorInvalidDevice;
  return std::exchange(enabled[device][to], true) ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  if (refused()) return cudaErrorStreamCaptureUnsupported;
  return wait_until([on = device] { return run_all(on); });
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
char const* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    default: return "?";
  }
}
char const* cudaGetErrorString(cudaError_t code) { return code == cudaErrorInvalidValue ? "invalid argument" : "?"; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) { return *p = {}, cudaSuccess; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) { return *free = *total = free_bytes, cudaSuccess; }
cudaError_t cudaMallocManaged(void** p, std::size_t n, unsigned) { return memory().take(p, n, cudaMemoryTypeManaged); }
cudaError_t cudaMemAdvise(void const* p, std::size_t, cudaMemoryAdvise, cudaMemLocation) {
  return memory().type_of(p) == cudaMemoryTypeManaged ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMalloc(void** p, std::size_t n) { return memory().take(p, n, cudaMemoryTypeDevice); }
cudaError_t cudaHostAlloc(void** p, std::size_t n, unsigned) { return memory().take(p, n, cudaMemoryTypeHost); }
cudaError_t cudaFree(void* p) { return memory().give(p); }
cudaError_t cudaFreeHost(void* p) { return memory().give(p); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* what, void const* p) {
  return *what = {}, what->type = memory().type_of(p), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int byte, std::size_t n, cudaStream_t stream) {
  return stand_in::put(stream, [=] { std::memset(p, byte, n); }), cudaSuccess;
}

/// From pageable memory the bytes are taken at once; to such memory the call returns when they are there.
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t n, cudaMemcpyKind, cudaStream_t stream) {
  auto const pageable = [](void const* p) { return memory().type_of(p) == cudaMemoryTypeUnregistered; };
  if ((pageable(from) || pageable(to)) && refused()) return cudaErrorStreamCaptureUnsupported;
  if (pageable(from)) {
    auto const* const bytes = static_cast<char const*>(from);
    stand_in::put(stream, [to, taken = std::vector<char>(bytes, bytes + n)] {
      std::copy(taken.begin(), taken.end(), static_cast<char*>(to));
    });
  } else {
    stand_in::put(stream, [=] { std::memcpy(to, from, n); });
  }
  return pageable(to) ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(new Shared{make_queue()}), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  static_cast<void>(cudaStreamSynchronize(stream));
  return delete reinterpret_cast<Shared*>(stream), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (refused()) return cudaErrorStreamCaptureUnsupported;
  return wait_until([queue = queue_of(stream), mark = queue_of(stream)->put] { return queue->run_to(mark); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return stand_in::put_until(stream,
                             [other = event->queue, mark = event->mark] { return !other || other->run_to(mark); }),
         cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new CUevent_st{}, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto const lock = locked();
  if (refused()) return cudaErrorStreamCaptureUnsupported;  // CUDA could; nobody here does
  return event->queue = queue_of(stream), event->mark = event->queue->put, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (refused()) return cudaErrorStreamCaptureUnsupported;
  return wait_until([event] { return !event->queue || event->queue->run_to(event->mark); });
}
/// The first who asks is told that it is not done, and the next one that it is.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  auto const lock = locked();
  if (refused()) return cudaErrorStreamCaptureUnsupported;
  if (!event->queue || event->queue->done >= event->mark) return cudaSuccess;
  return event->queue->run_to(event->mark), cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, cudaSuccess; }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  auto const lock  = locked();
  auto const queue = queue_of(stream);
  if (queue->recorded || mode != cudaStreamCaptureModeThreadLocal) return cudaErrorInvalidValue;
  queue->recorded      = std::make_unique<CUgraph_st>();
  recording            = queue.get();
  return queue->broken = false, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  auto const lock  = locked();
  auto const queue = queue_of(stream);
  auto made        = std::move(queue->recorded);
  recording        = nullptr;
  if (!made) return cudaErrorInvalidValue;
  if (queue->broken) return *graph = nullptr, cudaErrorStreamCaptureInvalidated;
  return *graph = made.release(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* run, cudaGraph_t graph, unsigned long long) {
  return *run = new CUgraphExec_st{graph->work}, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t stream) {
  return stand_in::put(stream,
                       [work = run->work] {
                         for (auto const& one : work) one();
                       }),
         cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* n) {
  return nodes == nullptr ? (*n = graph->work.size(), cudaSuccess) : cudaErrorInvalidValue;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run) { return delete run, cudaSuccess; }

}  // extern "C"
