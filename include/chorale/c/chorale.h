/* SPDX-License-Identifier: Apache-2.0
 *
 * Training from C and, by chorale.f90, from Fortran: a model of this library in a shared library that a few lines of
 * C++ make. See docs/36-solvers.md.
 *
 * Every function returns 0, or a code that is not 0: then chorale_message() is the sentence that says what is wrong. No
 * exception leaves a function. A trainer is used by one thread at a time. Functions that say so are called by every
 * process of the communicator, or by none.
 */
#ifndef CHORALE_C_CHORALE_H
#define CHORALE_C_CHORALE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes. They are those with which a program of this library exits: see docs/65-robustness.md. */
enum {
  CHORALE_OK            = 0,
  CHORALE_FAILED        = 1,  /* any other failure */
  CHORALE_BAD_ARGUMENT  = 2,  /* an argument, a shape or a file that cannot be used */
  CHORALE_DISAGREEMENT  = 3,  /* processes whose models or calls differ */
  CHORALE_NUMERIC_FAULT = 4,  /* a loss or a gradient that is not finite; copies that have drifted apart */
  CHORALE_FILE_FAULT    = 5,  /* a file that could not be written or read */
  CHORALE_PEER_LOST     = 138 /* another process failed, or fell silent */
};

/* In place of a communicator: this process trains alone. */
enum { CHORALE_ALONE = -1 };

/* A model with its variables, which this process trains with those of its communicator. */
typedef struct chorale_trainer chorale_trainer;

/* The type of numbers; SCATTERED is that of rows which do not lie one after another, which are refused. */
enum { CHORALE_F32 = 1, CHORALE_F64 = 2, CHORALE_I32 = 3, CHORALE_SCATTERED = 4 };

/* Rows in the program's memory: row r begins at number r * width. Nothing is copied of floats; doubles are rounded to
 * floats once, into memory that is kept. */
typedef struct {
  void const* data;
  size_t width; /* numbers in a row */
  size_t rows;
  int type; /* CHORALE_F32, CHORALE_F64, CHORALE_I32 */
} chorale_rows;

/* Memory of the program for rows that are predicted. */
typedef struct {
  void* data;
  size_t width;
  size_t rows;
  int type; /* CHORALE_F32, CHORALE_F64 */
} chorale_results;

static inline chorale_rows chorale_f32(float const* data, size_t width, size_t rows) {
  chorale_rows made = {data, width, rows, CHORALE_F32};
  return made;
}
static inline chorale_rows chorale_f64(double const* data, size_t width, size_t rows) {
  chorale_rows made = {data, width, rows, CHORALE_F64};
  return made;
}
static inline chorale_rows chorale_i32(int32_t const* data, size_t width, size_t rows) {
  chorale_rows made = {data, width, rows, CHORALE_I32};
  return made;
}
static inline chorale_results chorale_f32_results(float* data, size_t width, size_t rows) {
  chorale_results made = {data, width, rows, CHORALE_F32};
  return made;
}
static inline chorale_results chorale_f64_results(double* data, size_t width, size_t rows) {
  chorale_results made = {data, width, rows, CHORALE_F64};
  return made;
}

/* Makes a trainer of one of the library's models. Every process of the communicator calls it, with the same model and
 * seed. The one function that the C++ of the library writes itself: see <chorale/c/library.hpp>.
 *
 * model         its name in the library; NULL or "": the first one
 * communicator  MPI_Comm_c2f(communicator) in C, the communicator itself in Fortran; CHORALE_ALONE
 * seed          of the variables' first values
 * trainer       gets the trainer; NULL if it fails
 */
int chorale_create(char const* model, int communicator, uint64_t seed, chorale_trainer** trainer);

/* Ends a trainer; NULL is none. Every process calls it, before MPI_Finalize. Calls with a trainer that has ended are
 * refused, with CHORALE_BAD_ARGUMENT. */
int chorale_destroy(chorale_trainer* trainer);

/* Makes one step on the rows of all processes, those of rank 0 first. Every process calls it; one may have 0 rows.
 *
 * x, y   (rows, inputs) and (rows, targets)
 * loss   gets the mean over all rows, before the update; the same in every process. NULL: not asked for
 */
int chorale_train(chorale_trainer* trainer, chorale_rows x, chorale_rows y, double* loss);

/* Computes the loss of the rows of all processes. Every process calls it. */
int chorale_evaluate(chorale_trainer* trainer, chorale_rows x, chorale_rows y, double* loss);

/* Gets a metric of the last chorale_train or chorale_evaluate by its name, such as "mean_absolute_error". */
int chorale_metric(chorale_trainer const* trainer, char const* name, double* value);

/* Predicts the rows of this process into the program's memory, y (rows, outputs). Other processes need not call it, and
 * a mistake here ends nothing in them; but of a model whose variables are sharded, every process calls it. */
int chorale_predict(chorale_trainer* trainer, chorale_rows x, chorale_results y);

/* Writes the variables as a safetensors file; of several processes rank 0 writes. Every process calls it. */
int chorale_save(chorale_trainer* trainer, char const* file);

/* Reads the variables from a safetensors file. Every process calls it; rank 0 reads. */
int chorale_load(chorale_trainer* trainer, char const* file);

/* Gets numbers in a row of x, of y as chorale_train takes it, and of y as chorale_predict gives it. */
int chorale_widths(chorale_trainer const* trainer, size_t* inputs, size_t* targets, size_t* outputs);

/* Gets the number of steps so far. */
int chorale_steps(chorale_trainer const* trainer, uint64_t* steps);

/* Sets the learning rate of the next steps. Every process calls it with the same rate. */
int chorale_set_learning_rate(chorale_trainer* trainer, double rate);

/* The sentence of the last function that failed in this thread; "" if none has. Valid until the next one fails. */
char const* chorale_message(void);

#ifdef __cplusplus
}
#endif

#endif
