// SPDX-License-Identifier: Apache-2.0
//
// The heat solver of heat.c in C++, which trains a surrogate of itself while it runs: the same cells, the same loss.
//
//   mpirun -n 4 ./heat_cpp          see the page docs/36-solvers.md for how it is built
#include "surrogate.hpp"

#include <chorale/cluster/mpi.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/online.hpp>
#include <chorale/transport/mpi.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

using namespace chorale;

namespace {

constexpr int cells = 96, reach = 2, inputs = 6, every = 10, last = 1'000;

/// The cells of one rank: `reach` of the left neighbour, those of this rank, `reach` of the right one.
class Bar {
 public:
  explicit Bar(MPI_Comm ranks) : ranks_{ranks} {
    int size = 0, rank = 0;
    MPI_Comm_size(ranks, &size);
    MPI_Comm_rank(ranks, &rank);
    MPI_Cart_shift(ranks, 0, 1, &left_, &right_);
    first_ = cells * rank / size;
    n_     = cells * (rank + 1) / size - first_;
    u_.resize(static_cast<std::size_t>(n_ + 2 * reach));
    next_ = u_;
  }

  Span<double const> own() const { return Span<double const>{u_}.subspan(reach, rows()); }
  std::size_t rows() const { return static_cast<std::size_t>(n_); }

  /// Gets the cells beside those of this rank; beyond the ends of the bar they are 0.
  void exchange() {
    MPI_Sendrecv(&u_[reach], reach, MPI_DOUBLE, left_, 1, &u_[reach + rows()], reach, MPI_DOUBLE, right_, 1, ranks_,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u_[rows()], reach, MPI_DOUBLE, right_, 2, u_.data(), reach, MPI_DOUBLE, left_, 2, ranks_,
                 MPI_STATUS_IGNORE);
  }

  void advance(int step) {
    for (std::size_t i = reach; i < rows() + reach; ++i)
      next_[i] = 0.99 * u_[i] + 0.25 * (u_[i - 1] - 2 * u_[i] + u_[i + 1]) + 0.02 * heat(i, step);
    std::copy_n(next_.begin() + reach, n_, u_.begin() + reach);
  }

  /// What the model sees of each cell: five temperatures, and the heat.
  void look(int step, std::vector<double>& x) const {  // (rows, inputs)
    x.resize(rows() * inputs);
    for (std::size_t i = 0; i < rows(); ++i) {
      std::copy_n(&u_[i], inputs - 1, &x[i * inputs]);
      x[i * inputs + inputs - 1] = heat(i + reach, step);
    }
  }

 private:
  double heat(std::size_t i, int step) const {
    auto const cell  = first_ + static_cast<int>(i) - reach;
    auto const apart = (cell + 0.5) / cells - (0.5 + 0.3 * std::sin(0.004 * step));
    return std::exp(-100 * apart * apart);
  }

  MPI_Comm ranks_;
  int left_ = 0, right_ = 0, first_ = 0, n_ = 0;
  std::vector<double> u_, next_;
};

void run(MPI_Comm ranks, char const* file) {
  auto trainer = Trainer{surrogate::model(), MultiWorkerMirroredStrategy{cluster_of(ranks)}, RingAllReduce{},
                         MpiTransport{ranks}, 7};
  auto online  = OnlineTraining{trainer};
  auto bar     = Bar{ranks};
  auto before = std::vector<double>{}, now = before, expected = std::vector<double>(bar.rows());
  auto loss = 0.0, sum = 0.0, off = 0.0;
  for (int step = 0; step < last; ++step) {
    bar.exchange();
    if (step % every == 0) {
      auto const batch = BasicBatch<double, double>{.x = before, .y = bar.own(), .rows = bar.rows()};
      if (step > 0) sum += loss = online.train(batch).loss();
      bar.look(step, before);
    }
    if (step % every == every / 2) {
      off = 0;  // what was expected ten steps ago
      for (std::size_t i = 0; i < bar.rows() && step > every; ++i)
        off = std::max(off, std::abs(expected[i] - bar.own()[i]));
      bar.look(step, now);
      online.predict(BasicBatch<double, double>{.x = now, .rows = bar.rows()}, Span<double>{expected});
    }
    bar.advance(step);
  }
  MPI_Allreduce(MPI_IN_PLACE, &off, 1, MPI_DOUBLE, MPI_MAX, ranks);
  if (trainer.is_chief())
    std::printf("loss %.9f, on average %.9f, after %d steps of training; prediction off by %.4f at most\n", loss,
                sum / static_cast<double>(trainer.step()), static_cast<int>(trainer.step()), off);
  trainer.save(file);
}

}  // namespace

int main(int argc, char** argv) {
  auto ranks = MPI_COMM_NULL;
  int size = 0, code = 0;
  auto const periods = std::array{0};
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, periods.data(), 1, &ranks);
  try {
    run(ranks, argc > 1 ? argv[1] : "surrogate.safetensors");
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = exit_code(error);
  }
  MPI_Comm_free(&ranks);
  MPI_Finalize();
  return code;
}
