// SPDX-License-Identifier: Apache-2.0
//
// Models of a library for C that the ranks of a communicator train; empty where the compiler does not find MPI.
#pragma once

#include <chorale/c/library.hpp>

#include <chorale/cluster/mpi.hpp>
#include <chorale/core/error.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/transport/mpi.hpp>

#include <string>
#include <utility>

#if __has_include(<mpi.h>)

namespace chorale::c {

/// The communicator that a program has named to chorale_create.
///
/// throws  BadArgument when it has named none, or while MPI does not run, where MPI_Comm_f2c would end the program
inline MPI_Comm communicator_of(Job const& job) {
  if (job.communicator == CHORALE_ALONE)
    throw BadArgument{"chorale_create got CHORALE_ALONE, but the model is trained by the ranks of a communicator.",
                      "MPI_Comm_c2f(MPI_COMM_SELF), to train in one process."};
  int started = 0, over = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&over);
  if (!started || over)
    throw BadArgument{std::string{"chorale_create got a communicator "} +
                          (over ? "after MPI_Finalize has ended MPI." : "before the program has called MPI_Init."),
                      "chorale_create between MPI_Init and MPI_Finalize."};
  return MPI_Comm_f2c(job.communicator);
}

/// A trainer of the ranks of a job's communicator: each has a copy of the variables, on its share of the host's cores.
///
/// throws  BadArgument, as communicator_of() and MpiTransport::group() do
template <class M> auto mpi_trainer(M model, Job const& job) {
  auto const communicator = communicator_of(job);
  return Trainer{std::move(model), MultiWorkerMirroredStrategy{cluster_of(communicator)}, RingAllReduce{},
                 MpiTransport{communicator}, job.seed};
}

}  // namespace chorale::c

#endif
