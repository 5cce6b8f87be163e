// SPDX-License-Identifier: Apache-2.0
//
// How nccl.hpp starts, drives and ends NCCL; empty where the compiler does not find it.
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/half.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/transport/operation.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#include <nccl.h>

namespace chorale::nccl {

template <class T> inline constexpr auto nccl_type         = ncclNumTypes;  // of a type that NCCL does not have
template <> inline constexpr auto nccl_type<float>         = ncclFloat32;
template <> inline constexpr auto nccl_type<double>        = ncclFloat64;
template <> inline constexpr auto nccl_type<bf16>          = ncclBfloat16;
template <> inline constexpr auto nccl_type<fp16>          = ncclFloat16;
template <> inline constexpr auto nccl_type<std::int32_t>  = ncclInt32;
template <> inline constexpr auto nccl_type<std::int64_t>  = ncclInt64;
template <> inline constexpr auto nccl_type<std::uint32_t> = ncclUint32;
template <> inline constexpr auto nccl_type<std::uint64_t> = ncclUint64;

template <class T> concept NcclElement = nccl_type<T> != ncclNumTypes;

inline ncclRedOp_t nccl_op(Op op) {
  return std::array{ncclSum, ncclMin, ncclMax, ncclProd}[static_cast<std::size_t>(op)];
}

/// throws  Error with NCCL's own text when a call without a communicator has failed
inline void expect_nccl(ncclResult_t code, std::string const& call) {
  if (code != ncclSuccess && code != ncclInProgress)
    throw Error{call + " said: " + ncclGetErrorString(code) + ", " + ncclGetLastError(nullptr) + ".",
                "NCCL_DEBUG=WARN, which says why."};
}

/// Communicators of the ranks in this process; they are created and destroyed together.
///
/// keeps   no NCCL call blocks: each is polled until it is done, or until the deadline. Each rank's thread uses only
///         its own communicator
class Communicators {
 public:
  /// devices   [i] of the rank local[i]
  Communicators(int ranks, std::vector<Rank> local, std::vector<Cuda> devices, ncclUniqueId const& id,
                std::chrono::nanoseconds timeout)
      : local_{std::move(local)}, devices_{std::move(devices)}, timeout_{timeout}, comms_(local_.size(), nullptr) {
    try {
      begin(ranks, id);
      for (std::size_t i = 0; i < local_.size(); ++i) await(i, ncclInProgress, "ncclCommInitRankConfig");
    } catch (...) {
      for (std::size_t i = 0; i < local_.size(); ++i) abort(i);
      throw;
    }
  }
  ~Communicators() { end(); }
  Communicators(Communicators const&)            = delete;
  Communicators& operator=(Communicators const&) = delete;

  ncclComm_t comm(std::size_t i) const { return comms_[i]; }
  Cuda const& device(std::size_t i) const { return devices_[i]; }

  /// Waits until NCCL has enqueued the call. After an error the rank has no communicator.
  void await(std::size_t i, ncclResult_t code, std::string const& call) {
    expect_alive(i);
    auto patience       = Backoff{};
    auto const deadline = Deadline::after(timeout_);
    while (code == ncclInProgress) {
      patience.pause();
      look(i, deadline, call, code);
    }
    if (code != ncclSuccess) lose(i, call, code);
  }

  /// Waits until the queue of the device has reached `mark`.
  void await(std::size_t i, cuda::Event const& mark, std::string const& call) {
    auto patience       = Backoff{};
    auto const deadline = Deadline::after(timeout_);
    auto code           = ncclSuccess;
    while (!mark.done()) {
      patience.pause();
      if (patience.slow()) look(i, deadline, call, code);
      if (code != ncclSuccess && code != ncclInProgress) lose(i, call, code);
    }
  }

  /// Aborts the operations of this rank, in kernels too; its next operation throws.
  void abort(std::size_t i) {
    if (comms_[i] != nullptr) static_cast<void>(ncclCommAbort(std::exchange(comms_[i], nullptr)));
    aborted_ = true;
  }

  void expect_alive(std::size_t i) const {
    if (comms_[i] == nullptr)
      throw PeerLost{-1, "rank " + std::to_string(local_[i]) + " has left NCCL after an error.",
                     "make a new Trainer to go on, from a checkpoint if there is one."};
  }

 private:
  void begin(int ranks, ncclUniqueId const& id) {
    auto config     = ncclConfig_t NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    expect_nccl(ncclGroupStart(), "ncclGroupStart");
    auto code = ncclSuccess;
    for (std::size_t i = 0; i < local_.size() && (code == ncclSuccess || code == ncclInProgress); ++i) {
      auto const here = Cuda::Scope{devices_[i]};
      code            = ncclCommInitRankConfig(&comms_[i], ranks, id, local_[i], &config);
    }
    auto const together = ncclGroupEnd();  // also after an error: it closes the group
    expect_nccl(code, "ncclCommInitRankConfig");
    expect_nccl(together, "ncclGroupEnd");
  }

  void look(std::size_t i, Deadline deadline, std::string const& call, ncclResult_t& code) {
    if (ncclCommGetAsyncError(comms_[i], &code) != ncclSuccess) code = ncclInternalError;
    if (!deadline.passed()) return;
    auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    abort(i);
    throw PeerLost{-1,
                   "rank " + std::to_string(local_[i]) + " waited " + std::to_string(ms) + " ms in " + call +
                       ", and NCCL does not say for whom.",
                   "are all processes there? A slower step needs a larger NcclTransport::timeout."};
  }

  [[noreturn]] void lose(std::size_t i, std::string const& call, ncclResult_t code) {
    auto const why = std::string{ncclGetErrorString(code)} + ", " + ncclGetLastError(comms_[i]);
    abort(i);
    throw PeerLost{-1, "rank " + std::to_string(local_[i]) + " in " + call + ": NCCL said: " + why + ".",
                   "NCCL_DEBUG=WARN, which says more."};
  }

  /// Ends all communicators together: one ends only when the others do, and several may belong to this thread. If one
  /// was aborted, all are, since the others would wait for it.
  void end() {
    auto const deadline = Deadline::after(timeout_);
    for (auto const comm : comms_)
      if (comm != nullptr && !aborted_) static_cast<void>(ncclCommFinalize(comm));
    for (auto& comm : comms_) {
      if (comm == nullptr) continue;
      auto patience = Backoff{};
      auto code     = aborted_ ? ncclInternalError : ncclInProgress;
      for (; code == ncclInProgress && !deadline.passed(); patience.pause())
        if (ncclCommGetAsyncError(comm, &code) != ncclSuccess) code = ncclInternalError;
      static_cast<void>(code == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm));
      comm = nullptr;
    }
  }

  std::vector<Rank> local_;
  std::vector<Cuda> devices_;
  std::chrono::nanoseconds timeout_;
  std::vector<ncclComm_t> comms_;
  std::atomic<bool> aborted_{false};
};

}  // namespace chorale::nccl

#endif
