// SPDX-License-Identifier: Apache-2.0
//
// The same all-reduce by Open MPI, where it is installed: how mpirun is called, and one rank of it.
#pragma once

#ifdef CHORALE_HAVE_MPI

#include "ranks.hpp"

#include <chorale/transport/mpi.hpp>

#include <map>
#include <string>

namespace bench {

/// Its own choice, and algorithms that can be asked for by number.
inline std::map<std::string, std::string> const mpi_algorithms = {
    {"default", ""}, {"recursive_doubling", "3"}, {"ring", "4"}, {"rabenseifner", "6"}};

/// What stands before the program. `transport` is tcp or shared_memory.
inline std::string mpirun(std::string const& transport, std::string const& algorithm, int ranks) {
  auto command = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np " +
                 std::to_string(ranks) + " --mca pml ob1 --mca btl ";
  command += transport == "tcp" ? "tcp,self --mca btl_tcp_if_include lo " : "vader,self ";
  if (auto const number = mpi_algorithms.at(algorithm); !number.empty())
    command += "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm " + number + " ";
  return command;
}

/// In every process that mpirun starts; rank 0 gets the time, the others nothing.
inline double mpi_reduce(std::size_t bytes) {
  auto at          = std::move(chorale::MpiTransport{}.connect(chorale::MpiTransport::group())[0]);
  auto x           = std::vector<float>(bytes / sizeof(float));
  auto const times = times_of(at.rank(), at.size(), x, [&] { at.all_reduce(x, chorale::Op::sum); });
  auto const n     = static_cast<int>(times.size());
  auto all         = std::vector<double>(times.size() * static_cast<std::size_t>(at.size()));
  MPI_Gather(times.data(), n, MPI_DOUBLE, all.data(), n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  auto ranks = std::vector<Times>{};
  for (auto at_rank = all.begin(); at_rank != all.end(); at_rank += n) ranks.emplace_back(at_rank, at_rank + n);
  return microseconds(ranks);
}

}  // namespace bench

#endif
