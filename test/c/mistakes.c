/* SPDX-License-Identifier: Apache-2.0
 * What the ranks of a program are told when one of them makes a mistake, with the library of examples/25_surrogate; and
 * that the program's own messages go on. */
#include <chorale/c/chorale.h>

#include <mpi.h>

#include <stdio.h>
#include <string.h>

enum { ROWS = 8 };

static int failed = 0, rank = 0;

static void report(int holds, char const* what) {
  MPI_Allreduce(MPI_IN_PLACE, &holds, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) printf("%s: %s\n", holds ? "PASSED" : "FAILED", what);
  if (!holds) fprintf(stderr, "  rank %d, the last sentence: %s\n", rank, chorale_message());
  failed += !holds;
}

int main(int argc, char** argv) {
  double x[ROWS * 6], y[ROWS], loss = 0;
  chorale_trainer* model = NULL;
  int ranks = 0, level = 0;
  int early = chorale_create("surrogate", 0, 1, &model) == CHORALE_BAD_ARGUMENT;
  early     = early && strstr(chorale_message(), "before the program has called MPI_Init") != NULL;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < ROWS * 6; ++i) x[i] = 0.01 * (i + rank);
  for (int i = 0; i < ROWS; ++i) y[i] = x[6 * i];

  report(early, "MPI_Init comes before a model");
  int code = chorale_create("surrogate", CHORALE_ALONE, 1, &model);
  report(code == CHORALE_BAD_ARGUMENT && strstr(chorale_message(), "got CHORALE_ALONE") != NULL,
         "a model of many ranks is not trained without a communicator");
  code = chorale_create("surrogate", MPI_Comm_c2f(MPI_COMM_NULL), 1, &model);
  report(code == CHORALE_BAD_ARGUMENT && strstr(chorale_message(), "MPI_COMM_NULL") != NULL && model == NULL,
         "nor over MPI_COMM_NULL");
  int const world = MPI_Comm_c2f(MPI_COMM_WORLD);
  int const none  = world == 0 ? 4711 : 0; /* Open MPI numbers them, MPICH does not */
  code            = chorale_create("surrogate", none, 1, &model);
  report(code == CHORALE_BAD_ARGUMENT && strstr(chorale_message(), "a handle that is no communicator") != NULL,
         "nor over a number that is none");

  code = chorale_create("surrogate", MPI_Comm_c2f(MPI_COMM_WORLD), 1, &model);
  report(code == CHORALE_OK, "a model is made over the communicator");
  code = chorale_train(model, chorale_f64(x, 6, rank == 0 ? 0 : ROWS), chorale_f64(y, 1, rank == 0 ? 0 : ROWS), &loss);
  report(code == CHORALE_OK, "a rank may have no rows");
  double first = loss;
  MPI_Bcast(&first, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  report(loss == first && loss > 0, "the loss is that of all rows, on each rank");

  double out[ROWS];
  code = rank == 1 ? chorale_predict(model, chorale_f64(x, 5, ROWS), chorale_f64_results(out, 1, ROWS)) : 0;
  report(code == (rank == 1 ? CHORALE_BAD_ARGUMENT : 0), "a rank may predict alone, and be refused");
  code = rank == 1 ? chorale_predict(model, chorale_f64(x, 6, ROWS), chorale_f64_results(out, 1, ROWS)) : 0;
  report(code == CHORALE_OK && chorale_train(model, chorale_f64(x, 6, ROWS), chorale_f64(y, 1, ROWS), &loss) == 0,
         "which ends nothing");

  code = chorale_train(model, chorale_f64(x, rank == 1 ? 5 : 6, ROWS), chorale_f64(y, 1, ROWS), &loss);
  report(code == CHORALE_BAD_ARGUMENT && (rank == 1 || strstr(chorale_message(), "rank 1 failed in step") != NULL) &&
             strstr(chorale_message(), "x has rows of 5 numbers, but the model has 6") != NULL,
         "what one rank does wrong is told to all");
  code = chorale_train(model, chorale_f64(x, 6, ROWS), chorale_f64(y, 1, ROWS), &loss);
  report(code == CHORALE_PEER_LOST, "and ends their training");
  report(chorale_destroy(model) == CHORALE_OK, "the trainer ends");
  code = chorale_create("surrogate", MPI_Comm_c2f(MPI_COMM_WORLD), 1, &model);
  code += chorale_train(model, chorale_f64(x, 6, ROWS), chorale_f64(y, 1, ROWS), &loss);
  report(code == CHORALE_OK, "another one trains over the same communicator");
  MPI_Finalize();
  chorale_trainer* late = NULL;
  int const refused     = chorale_create("surrogate", world, 1, &late) == CHORALE_BAD_ARGUMENT;
  if (rank == 0) printf("%s: but none begins then\n", refused ? "PASSED" : "FAILED");
  code = chorale_destroy(model) + !refused;
  if (rank == 0) printf("%s: a trainer may end after MPI_Finalize\n", code == CHORALE_OK ? "PASSED" : "FAILED");
  return failed != 0 || code != CHORALE_OK;
}
