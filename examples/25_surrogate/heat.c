/* SPDX-License-Identifier: Apache-2.0
 *
 * A heat solver in C that trains a surrogate of itself while it runs.
 *
 * A bar of 96 cells lies over the ranks of a communicator, which exchange the two cells at their ends in every step; a
 * hot spot moves along it. Every tenth step each rank trains on its own cells, where they are in memory: five cells and
 * the heat before, the one in the middle now. In between the model predicts the bar ten steps ahead.
 *
 *   mpirun -n 4 ./heat_c          see the page docs/36-solvers.md for how it is built
 *
 * Expect, on any number of ranks, a line such as
 *   loss 0.000042, on average 0.000284, after 99 steps of training; prediction off by 0.03 at most
 */
#include <chorale/c/chorale.h>

#include <mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 96, REACH = 2, INPUTS = 6, EVERY = 10, STEPS = 1000 };

static MPI_Comm bar; /* its ranks lie side by side */

/* Ends the program with the library's sentence where a call has failed. */
static void check(int code) {
  if (code == CHORALE_OK) return;
  fprintf(stderr, "%s\n", chorale_message());
  MPI_Abort(bar, code);
}

/* The heat that comes to a cell in a step. */
static double heat(int cell, int step) {
  double const middle = 0.5 + 0.3 * sin(0.004 * step), apart = (cell + 0.5) / CELLS - middle;
  return exp(-100 * apart * apart);
}

/* u  REACH cells of the left neighbour, n of this rank, REACH of the right one; at the ends of the bar 0 */
static void exchange(double* u, int n, int left, int right) {
  MPI_Sendrecv(u + REACH, REACH, MPI_DOUBLE, left, 1, u + REACH + n, REACH, MPI_DOUBLE, right, 1, bar,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv(u + n, REACH, MPI_DOUBLE, right, 2, u, REACH, MPI_DOUBLE, left, 2, bar, MPI_STATUS_IGNORE);
}

/* x  (n, INPUTS) what the model sees of each cell: five temperatures, and the heat */
static void look(double const* u, int n, int first, int step, double* x) {
  for (int i = 0; i < n; ++i) {
    memcpy(x + INPUTS * i, u + i, (INPUTS - 1) * sizeof(double));
    x[INPUTS * i + INPUTS - 1] = heat(first + i, step);
  }
}

int main(int argc, char** argv) {
  int const periods[1] = {0};
  int ranks, rank, left, right;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, periods, 1, &bar);
  MPI_Comm_rank(bar, &rank);
  MPI_Cart_shift(bar, 0, 1, &left, &right);

  int const first = CELLS * rank / ranks, n = CELLS * (rank + 1) / ranks - first;
  double* u        = calloc((size_t)n + 2 * REACH, sizeof(double));
  double* next     = calloc((size_t)n + 2 * REACH, sizeof(double));
  double* before   = malloc((size_t)n * INPUTS * sizeof(double));
  double* now      = malloc((size_t)n * INPUTS * sizeof(double));
  double* expected = malloc((size_t)n * sizeof(double));
  double loss = 0, sum = 0, off = 0;

  chorale_trainer* model;
  check(chorale_create("surrogate", MPI_Comm_c2f(bar), 7, &model));
  for (int step = 0; step < STEPS; ++step) {
    exchange(u, n, left, right);
    if (step % EVERY == 0) {
      if (step > 0) /* on the cells before, and on those of u */
        check(
            chorale_train(model, chorale_f64(before, INPUTS, (size_t)n), chorale_f64(u + REACH, 1, (size_t)n), &loss));
      sum += loss;
      look(u, n, first, step, before);
    }
    if (step % EVERY == EVERY / 2) {
      off = 0; /* what was expected ten steps ago */
      for (int i = 0; i < n && step > EVERY; ++i) off = fmax(off, fabs(expected[i] - u[REACH + i]));
      look(u, n, first, step, now);
      check(chorale_predict(model, chorale_f64(now, INPUTS, (size_t)n), chorale_f64_results(expected, 1, (size_t)n)));
    }
    for (int i = REACH; i < n + REACH; ++i)
      next[i] = 0.99 * u[i] + 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1]) + 0.02 * heat(first + i - REACH, step);
    memcpy(u + REACH, next + REACH, (size_t)n * sizeof(double));
  }
  MPI_Allreduce(MPI_IN_PLACE, &off, 1, MPI_DOUBLE, MPI_MAX, bar);
  uint64_t steps;
  check(chorale_steps(model, &steps));
  if (rank == 0)
    printf("loss %.9f, on average %.9f, after %d steps of training; prediction off by %.4f at most\n", loss,
           sum / (double)steps, (int)steps, off);
  check(chorale_save(model, argc > 1 ? argv[1] : "surrogate.safetensors"));
  check(chorale_destroy(model));
  free(u), free(next), free(before), free(now), free(expected);
  MPI_Comm_free(&bar);
  MPI_Finalize();
  return 0;
}
