// SPDX-License-Identifier: Apache-2.0
//
// MPI_Allreduce, timed as bench/reduce times everything. It compiles this once for each MPI that it finds, because the
// handles of two MPIs have different types, and starts it with that MPI's mpirun.
//
//   mpi_peer BYTES      rank 0 prints "microseconds N"; buffers are the program's own
#include "ranks.hpp"

#include <mpi.h>

#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    auto const bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    if (bytes < sizeof(float)) throw std::runtime_error{"chorale: mpi_peer needs BYTES, at least 4"};
    bench::pin(rank, ranks);
    auto x           = std::vector<float>(bytes / sizeof(float));
    auto const times = bench::times_of(rank, ranks, x, [&] {
      MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    auto const n     = static_cast<int>(times.size());
    auto all         = std::vector<double>(times.size() * static_cast<std::size_t>(ranks));
    MPI_Gather(times.data(), n, MPI_DOUBLE, all.data(), n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    auto by_rank = std::vector<bench::Times>{};
    for (auto at = all.begin(); at != all.end(); at += n) by_rank.emplace_back(at, at + n);
    if (rank == 0) std::printf("microseconds %.4f\n", bench::microseconds(by_rank));
  } catch (std::exception const& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
