// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links NCCL and the CUDA runtime.
#pragma once

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_NCCL)
#error "chorale: this header is of the component nccl. Try: add chorale::nccl to target_link_libraries()"
#endif

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_copies.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/transport/common/forwarding_endpoint.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/nccl/communicators.hpp>
#include <chorale/transport/staged.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)

namespace chorale {

/// One rank on one GPU, with NCCL's collectives and the messages of another transport. See NcclTransport.
///
/// keeps   x must be complete, on whichever thread it was computed; each call returns when its result is complete.
///         start_all_reduce() is the exception to both
/// cost    memory that is not the device's alone, such as Cuda's blocks, is copied to device memory and back
/// order   NCCL's: for sums, the same bits on all ranks of one job, not between jobs of other shapes
/// throws  PeerLost when a rank is missing, or NCCL fails; before the wait for NCCL, all ranks synchronize by messages,
///         so that the transport of messages detects a rank that is missing, or in another operation
template <Endpoint E> class NcclEndpoint : public ForwardingEndpoint<E> {
  using Base = ForwardingEndpoint<E>;

 public:
  NcclEndpoint(E at, std::shared_ptr<nccl::Communicators> comms, std::size_t local)
      : Base{std::move(at)}, comms_{std::move(comms)}, local_{local} {
    auto const here = Cuda::Scope{comms_->device(local_)};
    queue_          = std::make_unique<Queue>();
  }

  /// See chorale::announce().
  void announce(Operation const& operation) {
    operation_ = operation;
    Base::announce(operation);
  }

  template <nccl::NcclElement T> void all_reduce(Span<T> x, Op op) {
    run("ncclAllReduce", Span<T const>{x}, x, [&](auto from, auto to, ncclComm_t comm, cudaStream_t queue) {
      return ncclAllReduce(from, to, x.size(), nccl::nccl_type<T>, nccl::nccl_op(op), comm, queue);
    });
  }

  /// An all_reduce in flight: a Pending.
  class reduction {
   public:
    bool done() const { return comms_ == nullptr || end_->done(); }
    void wait() {
      if (comms_ != nullptr) comms_->await(local_, *end_, "ncclAllReduce");
    }

   private:
    friend NcclEndpoint;
    std::shared_ptr<nccl::Communicators> comms_;
    std::size_t local_ = 0;
    std::optional<cuda::Event> end_;
  };

  /// Enqueues an all_reduce of x on this endpoint's stream, after the work that the calling thread has enqueued, which
  /// continues meanwhile. Returns when all ranks have called it. Several may be in flight: they run in order.
  void start_all_reduce(Span<float> x, Op op, reduction& under_way) {
    auto const here = Cuda::Scope{comms_->device(local_)};
    comms_->expect_alive(local_);
    meet();
    queue_->begin.record(cudaStreamPerThread);
    queue_->stream.follow(queue_->begin);
    put("ncclAllReduce", Span<float const>{x}, x, [&](auto from, auto to, ncclComm_t comm, cudaStream_t queue) {
      return ncclAllReduce(from, to, x.size(), ncclFloat32, nccl::nccl_op(op), comm, queue);
    });
    if (!under_way.end_) under_way.end_.emplace();
    under_way.end_->record(queue_->stream.get());
    under_way.comms_ = comms_;
    under_way.local_ = local_;
  }

  /// Reduces x to rank `root`, which gets the result; the x of other ranks may change.
  template <nccl::NcclElement T> void reduce(Span<T> x, Op op, Rank root) {
    expect_rank(root);
    run("ncclReduce", Span<T const>{x}, x, [&](auto from, auto to, ncclComm_t comm, cudaStream_t queue) {
      return ncclReduce(from, to, x.size(), nccl::nccl_type<T>, nccl::nccl_op(op), root, comm, queue);
    });
  }

  template <nccl::NcclElement T> void broadcast(Span<T> x, Rank root) {
    expect_rank(root);
    run("ncclBroadcast", Span<T const>{x}, x, [&](auto from, auto to, ncclComm_t comm, cudaStream_t queue) {
      return ncclBroadcast(from, to, x.size(), nccl::nccl_type<T>, root, comm, queue);
    });
  }

  /// mine    the rank-th of size() equal parts of the reduction of all x
  template <nccl::NcclElement T> void reduce_scatter(Span<T const> x, Span<T> mine, Op op) {
    expect_parts(x.size(), mine.size());
    run("ncclReduceScatter", x, mine, [&](auto from, auto to, ncclComm_t comm, cudaStream_t queue) {
      return ncclReduceScatter(from, to, mine.size(), nccl::nccl_type<T>, nccl::nccl_op(op), comm, queue);
    });
  }

  template <nccl::NcclElement T> void all_gather(Span<T const> mine, Span<T> all) {
    expect_parts(all.size(), mine.size());
    run("ncclAllGather", mine, all, [&](auto from, auto to, ncclComm_t comm, cudaStream_t queue) {
      return ncclAllGather(from, to, mine.size(), nccl::nccl_type<T>, comm, queue);
    });
  }

  void fail(std::string const& why, Fault fault = Fault::peer_lost) {
    comms_->abort(local_);
    Base::fail(why, fault);
  }

 private:
  /// Memory for copies. Blocks that are too small are freed at the end, because cudaFree waits for a device, without a
  /// deadline, and so for ranks that may wait for this one. Sizes double, so all have at most twice the last size.
  class Rooms {
   public:
    void* take(std::size_t bytes) {
      if (all_.empty() || all_.back().size() < bytes) {
        auto const twice = all_.empty() ? 0 : 2 * all_.back().size();
        all_.emplace_back().take(std::max(bytes, twice));
      }
      return all_.back().take(bytes);
    }

   private:
    std::vector<cuda::Room> all_;
  };

  struct Queue {
    cuda::Stream stream;
    cuda::Event begin, end;
    Rooms in, out;
  };

  void expect_rank(Rank rank) const {
    CHORALE_EXPECTS(rank >= 0 && rank < this->size(),
                    "no rank " + std::to_string(rank) + " in a group of " + std::to_string(this->size()));
  }
  void expect_parts(std::size_t all, std::size_t part) const {
    CHORALE_EXPECTS(all == part * static_cast<std::size_t>(this->size()), std::to_string(all) + " elements are not " +
                                                                              std::to_string(this->size()) +
                                                                              " parts of " + std::to_string(part));
  }

  /// True if it is memory of the device alone. NCCL's support of managed memory depends on the machine: that is copied.
  static bool is_of_device(void const* address) {
    auto what = cudaPointerAttributes{};
    cuda::expect(cudaPointerGetAttributes(&what, address), "cudaPointerGetAttributes");
    return what.type == cudaMemoryTypeDevice;
  }

  /// Runs a collective, and waits for its result. call(from, to, communicator, queue) enqueues it.
  template <class T, class Call> void run(std::string const& name, Span<T const> in, Span<T> out, Call call) {
    auto const here = Cuda::Scope{comms_->device(local_)};
    comms_->expect_alive(local_);
    meet();
    put(name, in, out, call);
    queue_->end.record(queue_->stream.get());
    comms_->await(local_, queue_->end, name);
  }

  /// Enqueues a collective and its copies, without a wait. Later copies use the same memory: the queue orders them.
  template <class T, class Call> void put(std::string const& name, Span<T const> in, Span<T> out, Call call) {
    auto const stream     = queue_->stream.get();
    auto const* from      = in.data();
    auto* to              = out.data();
    auto const in_place   = from == to;
    auto const copied_in  = !in.empty() && !is_of_device(in.data());
    auto const copied_out = in_place && !in.empty() ? copied_in : !out.empty() && !is_of_device(out.data());
    if (copied_in) {
      auto const bytes = in_place ? std::max(in.size_bytes(), out.size_bytes()) : in.size_bytes();
      auto* const room = static_cast<T*>(queue_->in.take(bytes));
      cuda::copy(room, in.data(), in.size_bytes(), stream);
      from = room;
      if (in_place) to = room;
    }
    if (copied_out && !in_place) to = static_cast<T*>(queue_->out.take(out.size_bytes()));
    comms_->await(local_, call(from, to, comms_->comm(local_), stream), name);
    if (copied_out) cuda::copy(out.data(), to, out.size_bytes(), stream);
  }

  /// Returns when every rank has reached this operation.
  void meet() {
    auto const P = this->size();
    for (int distance = 1; distance < P; distance *= 2) {
      auto sent = this->send((this->rank() + distance) % P, operation_.tag, {});
      this->recv((this->rank() - distance + P) % P, operation_.tag, {}).wait();
      sent.wait();
    }
  }

  std::shared_ptr<nccl::Communicators> comms_;
  std::size_t local_;  // index among the ranks of this process
  std::unique_ptr<Queue> queue_;
  Operation operation_{};
};

/// GPUs that NCCL connects, in one process or in many: each rank has one, and its collectives are NCCL's. Messages,
/// for example to synchronize ranks, use another transport; if its handshake is authenticated, so is the exchange
/// of NCCL's unique id.
///
///   Trainer{model, MirroredStrategy{Cuda::visible()}, NativeAllReduce{}, NcclTransport{}}
///   NcclTransport<Staged<TcpTransport, CudaCopies>>{.devices = {Cuda{local}}}          one process for each GPU
///
/// keeps   NCCL's communicators never block: after the timeout they are aborted. After that, or after another error, an
///         endpoint cannot be used any more. The communicators of a process end together
/// cost    log2 P empty messages before each collective
/// throws  BadArgument when a process has more ranks than devices; PeerLost when a rank does not connect in time
///
/// T         the transport that sends messages
/// devices   for the ranks of this process, in order of ranks; no two ranks share one
/// timeout   the longest wait for one operation
template <Transport T = Staged<LocalTransport, CudaCopies>> struct NcclTransport {
  using endpoint = NcclEndpoint<typename T::endpoint>;

  T messages{};
  std::vector<Cuda> devices        = Cuda::visible();
  std::chrono::nanoseconds timeout = std::chrono::seconds{60};

  static constexpr bool reaches(Memory memory) { return T::reaches(memory); }

  std::vector<endpoint> connect(Group const& group) const {
    auto const& local = group.local();
    if (devices.empty()) throw BadArgument{Cuda::missing(), "another transport, or a machine with an NVIDIA GPU."};
    CHORALE_EXPECTS(local.size() <= devices.size(),
                    std::to_string(local.size()) + " ranks of this process need a device each, but NcclTransport has " +
                        std::to_string(devices.size()));
    auto inner = messages.connect(group);
    if (inner.empty()) return {};
    auto const used = std::vector<Cuda>(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(local.size()));
    auto const comms =
        std::make_shared<nccl::Communicators>(group.size(), local, used, shared_id(group, inner), timeout);
    auto endpoints = std::vector<endpoint>{};
    for (std::size_t i = 0; i < inner.size(); ++i) endpoints.emplace_back(std::move(inner[i]), comms, i);
    return endpoints;
  }

 private:
  /// Returns NCCL's unique id, which rank 0 makes and sends to all ranks in other processes.
  static ncclUniqueId shared_id(Group const& group, std::vector<typename T::endpoint>& inner) {
    auto id           = ncclUniqueId{};
    auto const& local = group.local();
    auto const bytes  = std::as_writable_bytes(Span<ncclUniqueId>{&id, 1});
    if (local.front() != 0) {
      for (auto& at : inner) at.recv(0, {}, bytes).wait();
      return id;
    }
    nccl::expect_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (Rank peer = 1; peer < group.size(); ++peer)
      if (!std::binary_search(local.begin(), local.end(), peer)) inner.front().send(peer, {}, bytes).wait();
    return id;
  }
};

static_assert(CollectiveTransport<NcclTransport<>>);

}  // namespace chorale

#else

namespace chorale {

/// Compile-time error for a program that uses NcclTransport where the compiler does not find NCCL.
template <class Program = void> struct NcclTransport {
  static_assert(sizeof(Program*) == 0,
                "chorale: NcclTransport needs <nccl.h> and <cuda_runtime_api.h>, which the "
                "compiler does not find. Install NCCL and the CUDA toolkit, or use another");
};

}  // namespace chorale

#endif
