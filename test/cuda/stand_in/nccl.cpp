// SPDX-License-Identifier: Apache-2.0
//
// In place of NCCL, of one rank: every call is in progress at first, and over when it is asked about. See runtime.cpp.
#include "test/cuda/stand_in/queue.hpp"

#include <nccl.h>

#include <cstddef>
#include <cstring>

extern "C" {

struct ncclComm {
  bool under_way;
};

char const* ncclGetErrorString(ncclResult_t) { return "?"; }
char const* ncclGetLastError(ncclComm_t) { return "?"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return *id = {}, ncclSuccess; }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclInProgress; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank, ncclConfig_t* config) {
  if (ranks != 1 || rank != 0 || config->blocking != 0) return ncclInvalidArgument;
  return *comm = new ncclComm{true}, ncclInProgress;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->under_way = true, ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* code) {
  *code           = comm->under_way ? ncclInProgress : ncclSuccess;
  comm->under_way = false;
  return ncclSuccess;
}

static ncclResult_t copied(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (comm->under_way || type != ncclFloat32) return ncclInvalidUsage;     // before the last call was over
  comm->under_way = true;
  return stand_in::put(stream, [=] { std::memmove(to, from, n * sizeof(float)); }), ncclInProgress;
}
ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return copied(from, to, n, type, comm, stream);
}
ncclResult_t ncclReduce(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t, int,
                        ncclComm_t comm, cudaStream_t stream) {
  return copied(from, to, n, type, comm, stream);
}
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t n, ncclDataType_t type, int, ncclComm_t comm,
                           cudaStream_t stream) {
  return copied(from, to, n, type, comm, stream);
}
ncclResult_t ncclReduceScatter(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return copied(from, to, n, type, comm, stream);
}
ncclResult_t ncclAllGather(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return copied(from, to, n, type, comm, stream);
}

}  // extern "C"
