// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links MPI.
#pragma once

#include <chorale/transport/mpi.hpp>

#include <chorale/cluster/cluster.hpp>

#include <utility>

#if __has_include(<mpi.h>)

namespace chorale {

/// The cluster of a program's own communicator: each rank is a worker, and this process one of them. Every rank of the
/// communicator calls it.
///
///   auto trainer = Trainer{model, MultiWorkerMirroredStrategy{cluster_of(communicator)}, RingAllReduce{},
///                          MpiTransport{communicator}};
///
/// keeps   no variable of the environment is read: any launcher that starts the program will do. Workers have no
///         addresses, which MpiTransport does not need
/// throws  BadArgument when ranks cannot be connected over the communicator: see MpiTransport::group
inline Cluster cluster_of(MPI_Comm communicator) {
  auto const group = MpiTransport::group(communicator);
  auto parts       = ClusterParts{.me = {Role::worker, group.local().front()}, .found_in = "an MPI communicator"};
  for (int rank = 0; rank < group.size(); ++rank) parts.tasks.push_back({{Role::worker, rank}});
  auto here = MPI_COMM_NULL;
  mpi::expect_mpi(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
                  "MPI_Comm_split_type");
  MPI_Comm_rank(here, &parts.local_rank);
  MPI_Comm_size(here, &parts.local_size);
  MPI_Comm_free(&here);
  parts.no_addresses = "its ranks have no addresses, and MpiTransport needs none.";
  return Cluster{std::move(parts)};
}

}  // namespace chorale

#else

namespace chorale {

/// Compile-time error for a program that names a communicator where the compiler does not find MPI.
template <class Communicator> Cluster cluster_of(Communicator) {
  static_assert(sizeof(Communicator) == 0,
                "chorale: cluster_of(communicator) needs <mpi.h>, which the compiler does not find. Depend on @mpi, or "
                "compile with mpicxx; on Debian: apt-get install libopenmpi-dev");
  return Cluster::local();
}

}  // namespace chorale

#endif
