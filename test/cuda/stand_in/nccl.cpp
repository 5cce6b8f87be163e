// SPDX-License-Identifier: Apache-2.0
//
// In place of NCCL, for the ranks of one process: every call is in progress at first, and over when it is asked about;
// what it queues runs when all ranks have come to it. Sums are added in the order of ranks. See runtime.cpp.
#include "test/cuda/stand_in/queue.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace {

/// One collective: what each rank gives, until all have got what they want.
struct RendezvousInfo {
  std::map<int, std::vector<float>> given;  // by rank
  int served = 0;
};
struct Group {
  int ranks = 0;
  std::set<int> joined, devices;
  bool aborted = false;
  std::map<std::size_t, RendezvousInfo> meetings;  // by number
};

std::map<int, std::shared_ptr<Group>>& groups() {
  static auto all = std::map<int, std::shared_ptr<Group>>{};
  return all;
}
auto locked() { return std::lock_guard{stand_in::mutex()}; }

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank;
  bool under_way     = true;
  std::size_t number = 0;  // of its next collective
};

extern "C" {

char const* ncclGetErrorString(ncclResult_t) { return "?"; }
char const* ncclGetLastError(ncclComm_t) { return "?"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static auto last = 0;
  auto const lock  = locked();
  *id              = {}, ++last;
  return std::memcpy(id->internal, &last, sizeof last), ncclSuccess;
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclInProgress; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  auto const lock = locked();
  auto which = 0, device = 0;
  std::memcpy(&which, id.internal, sizeof which);
  auto& group = groups()[which];
  if (!group) group = std::make_shared<Group>(Group{.ranks = ranks});
  if (ranks != group->ranks || rank < 0 || rank >= ranks || config->blocking != 0) return ncclInvalidArgument;
  if (cudaGetDevice(&device) != cudaSuccess || !group->devices.insert(device).second) return ncclInvalidUsage;
  group->joined.insert(rank);
  return *comm = new ncclComm{group, rank}, ncclInProgress;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->under_way = true, ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  auto const lock      = locked();
  comm->group->aborted = true;
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* code) {
  auto const lock  = locked();
  auto const alone = static_cast<int>(comm->group->joined.size()) < comm->group->ranks;
  *code            = comm->under_way || alone ? ncclInProgress : ncclSuccess;
  comm->under_way  = false;
  return ncclSuccess;
}

}  // extern "C"

namespace {

/// take(what each rank has given): called when all have, to write what this rank gets.
template <class Take>
ncclResult_t meet(void const* from, std::size_t n, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                  Take take) {
  auto const lock = locked();
  if (comm->under_way || type != ncclFloat32) return ncclInvalidUsage;  // before the last call was over
  comm->under_way = true;
  stand_in::put_until(stream, [=, group = comm->group, rank = comm->rank, number = comm->number++] {
    if (group->aborted) return true;
    auto& meeting = group->meetings[number];
    auto const* x = static_cast<float const*>(from);
    meeting.given.try_emplace(rank, x, x + n);
    if (static_cast<int>(meeting.given.size()) < group->ranks) return false;
    take(meeting.given);
    if (++meeting.served == group->ranks) group->meetings.erase(number);
    return true;
  });
  return ncclInProgress;
}

using Given = std::map<int, std::vector<float>>;

float combined(Given const& given, std::size_t i, ncclRedOp_t op) {
  auto result = given.at(0)[i];
  for (auto const& [rank, x] : given) {
    if (rank == 0) continue;
    if (op == ncclSum) result += x[i];
    else if (op == ncclProd) result *= x[i];
    else result = op == ncclMin ? std::min(result, x[i]) : std::max(result, x[i]);
  }
  return result;
}

auto reduced(void* to, std::size_t first, std::size_t n, ncclRedOp_t op) {
  return [=](Given const& given) {
    for (std::size_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = combined(given, first + i, op);
  };
}

}  // namespace

extern "C" {

ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return meet(from, n, type, comm, stream, reduced(to, 0, n, op));
}
ncclResult_t ncclReduce(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return meet(from, n, type, comm, stream, reduced(to, 0, comm->rank == root ? n : 0, op));
}
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return meet(from, n, type, comm, stream,
              [=](Given const& given) { std::copy_n(given.at(root).begin(), n, static_cast<float*>(to)); });
}
ncclResult_t ncclReduceScatter(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return meet(from, n * static_cast<std::size_t>(comm->group->ranks), type, comm, stream,
              reduced(to, n * static_cast<std::size_t>(comm->rank), n, op));
}
ncclResult_t ncclAllGather(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return meet(from, n, type, comm, stream, [=](Given const& given) {
    auto* at = static_cast<float*>(to);
    for (auto const& [rank, x] : given) at = std::copy_n(x.begin(), n, at);
  });
}

}  // extern "C"
