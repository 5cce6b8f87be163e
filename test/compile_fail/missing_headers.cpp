// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/cluster/mpi.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/transport/mpi.hpp>
#include <chorale/transport/nccl.hpp>
#include <chorale/transport/tcp.hpp>

using namespace chorale;

// expect: compiles
auto transport() { return TcpTransport{}; }
auto device() { return Cpu{}; }

// expect (without <mpi.h>): chorale: MpiTransport needs <mpi.h>, which the compiler does not find
auto transport() { return MpiTransport{}; }

// expect (without <mpi.h>): chorale: cluster_of(communicator) needs <mpi.h>, which the compiler does not find
auto cluster() { return cluster_of(0); }

// expect (without <nccl.h>): chorale: NcclTransport needs <nccl.h> and <cuda_runtime_api.h>, which the compiler does not find
auto transport() { return NcclTransport{}; }

// expect (without <cuda_runtime_api.h>): chorale: Cuda needs <cuda_runtime_api.h>, which the compiler does not find
auto device() { return Cuda{}; }
