/* SPDX-License-Identifier: Apache-2.0
 * What chorale.h promises, from a program in C that trains alone. */
#include <chorale/c/chorale.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 20 };

static int failed = 0;

static void report(int holds, char const* what) {
  printf("%s: %s\n", holds ? "PASSED" : "FAILED", what);
  if (!holds) printf("  the last sentence: %s\n", chorale_message());
  failed += !holds;
}

/* The code is that of a bad argument, and the sentence says `text`. */
static void refused(int code, char const* text) {
  report(code == CHORALE_BAD_ARGUMENT && strstr(chorale_message(), text) != NULL, text);
}

static void train_and_keep(char const* folder) {
  float x[ROWS * 3], y[ROWS * 2], before[ROWS * 2], after[ROWS * 2];
  double wide_x[ROWS * 3], wide_y[ROWS * 2], wide[ROWS * 2], first = 0, loss = 0, wide_loss = 0, same = 0;
  size_t inputs = 0, targets = 0, outputs = 0;
  uint64_t steps = 0;
  char file[500];
  chorale_trainer *model = NULL, *doubles = NULL, *again = NULL;
  for (int i = 0; i < ROWS * 3; ++i) x[i] = 0.1f * (float)(i % 7) - 0.3f, wide_x[i] = x[i];
  for (int i = 0; i < ROWS; ++i)
    for (int k = 0; k < 2; ++k) y[2 * i + k] = x[3 * i] - (float)k * x[3 * i + 2], wide_y[2 * i + k] = y[2 * i + k];

  report(chorale_create("plane", CHORALE_ALONE, 7, &model) == CHORALE_OK && model != NULL, "a model has a name");
  report(chorale_create(NULL, CHORALE_ALONE, 7, &doubles) == CHORALE_OK, "without a name it is the first one");
  chorale_widths(model, &inputs, &targets, &outputs);
  report(inputs == 3 && targets == 2 && outputs == 2, "a model tells how many numbers a row has");
  for (int i = 0; i < 300; ++i) {
    int const codes = chorale_train(model, chorale_f32(x, 3, ROWS), chorale_f32(y, 2, ROWS), &loss) +
                      chorale_train(doubles, chorale_f64(wide_x, 3, ROWS), chorale_f64(wide_y, 2, ROWS), &wide_loss);
    if (i == 0) first = loss;
    if (codes != 0 || loss != wide_loss) {
      report(0, "floats and doubles that are floats train alike");
      break;
    }
  }
  report(loss < 0.01 * first, "the loss is a hundredth of the first one after 300 steps");
  chorale_steps(model, &steps);
  report(steps == 300, "steps are counted");
  chorale_predict(model, chorale_f32(x, 3, ROWS), chorale_f32_results(before, 2, ROWS));
  chorale_predict(model, chorale_f64(wide_x, 3, ROWS), chorale_f64_results(wide, 2, ROWS));
  for (int i = 0; i < 2 * ROWS; ++i) same += wide[i] == (double)before[i];
  report(same == 2 * ROWS && fabsf(before[0] - y[0]) < 0.2f, "what is predicted is near the targets, in both types");

  snprintf(file, sizeof file, "%s/plane.safetensors", folder);
  report(chorale_save(model, file) == CHORALE_OK, "variables are written");
  report(chorale_create("plane", CHORALE_ALONE, 8, &again) == CHORALE_OK && chorale_load(again, file) == CHORALE_OK,
         "and read by another trainer");
  chorale_predict(again, chorale_f32(x, 3, ROWS), chorale_f32_results(after, 2, ROWS));
  report(memcmp(before, after, sizeof before) == 0, "which then predicts the same bits");
  chorale_evaluate(model, chorale_f32(x, 3, ROWS), chorale_f32(y, 2, ROWS), &loss);
  chorale_evaluate(again, chorale_f32(x, 3, ROWS), chorale_f32(y, 2, ROWS), &wide_loss);
  report(loss == wide_loss, "and has the same loss");

  refused(chorale_train(model, chorale_f32(x, 4, 15), chorale_f32(y, 2, 15), NULL),
          "x has rows of 4 numbers, but the model has 3 there");
  refused(chorale_train(model, chorale_f32(x, 3, 5), chorale_f32(y, 1, 5), NULL),
          "y has rows of 1 numbers, but the model has 2 there");
  refused(chorale_train(model, chorale_f32(x, 3, 5), chorale_f32(y, 2, 4), NULL), "x has 5 rows, but y has 4");
  refused(chorale_train(model, chorale_f32(NULL, 3, 5), chorale_f32(y, 2, 5), NULL), "x is NULL, but has 5 rows");
  refused(chorale_train(model, chorale_f32(x, 3, (size_t)-1), chorale_f32(y, 2, (size_t)-1), NULL), "no memory has");
  refused(chorale_predict(model, chorale_f32(x, 3, 5), chorale_f32_results(NULL, 2, 5)), "y is NULL, but has 5 rows");
  refused(chorale_train(model, chorale_f32(x, 3, 0), chorale_f32(y, 2, 0), NULL), "has 0 rows in all of them");
  refused(chorale_predict(model, chorale_f32(x, 3, 5), chorale_f32_results(after, 2, 6)), "x has 5 rows, but y has 6");
  refused(chorale_predict(NULL, chorale_f32(x, 3, 5), chorale_f32_results(after, 2, 5)),
          "the argument trainer is NULL");
  refused(chorale_train(NULL, chorale_f32(x, 3, 5), chorale_f32(y, 2, 5), NULL), "the argument trainer is NULL");
  refused(chorale_evaluate(NULL, chorale_f32(x, 3, 5), chorale_f32(y, 2, 5), NULL), "the argument trainer is NULL");
  refused(chorale_metric(NULL, "accuracy", &loss), "the argument trainer is NULL");
  refused(chorale_metric(model, NULL, &loss), "the argument name is NULL");
  refused(chorale_save(model, NULL), "the argument file is NULL");
  refused(chorale_load(NULL, file), "the argument trainer is NULL");
  refused(chorale_widths(NULL, NULL, NULL, NULL), "the argument trainer is NULL");
  refused(chorale_steps(model, NULL), "the argument steps is NULL");
  refused(chorale_set_learning_rate(NULL, 1), "the argument trainer is NULL");
  report(chorale_widths(model, NULL, NULL, NULL) == CHORALE_OK, "widths that nobody asks for may be NULL");
  refused(chorale_load(model, "/nowhere/at/all"), "/nowhere/at/all");
  refused(chorale_set_learning_rate(model, -1), "a learning rate is 0 or more, got -1");
  refused(chorale_metric(model, "accuracy", &loss), "the model has no metric accuracy");
  chorale_rows section = chorale_f32(x, 3, 5);
  section.type         = CHORALE_SCATTERED;
  refused(chorale_train(model, section, chorale_f32(y, 2, 5), NULL), "5 rows that do not lie one after another");
  report(chorale_train(model, chorale_f32(x, 3, 5), chorale_f32(y, 2, 5), NULL) == CHORALE_OK, "training goes on");
  x[0] = NAN;
  report(chorale_train(model, chorale_f32(x, 3, 5), chorale_f32(y, 2, 5), NULL) == CHORALE_NUMERIC_FAULT,
         "a loss that is not finite has a code of its own");
  int const ended = chorale_destroy(model) + chorale_destroy(doubles) + chorale_destroy(again) + chorale_destroy(NULL);
  report(ended == CHORALE_OK, "trainers end");
}

static void classify(void) {
  float const x[]        = {1, 0, 0, 1, -1, -1};
  int32_t const labels[] = {0, 1, 2};
  double accuracy        = 0;
  chorale_trainer* model = NULL;
  chorale_create("kinds", CHORALE_ALONE, 1, &model);
  for (int i = 0; i < 50; ++i) chorale_train(model, chorale_f32(x, 2, 3), chorale_i32(labels, 1, 3), NULL);
  report(chorale_metric(model, "accuracy", &accuracy) == CHORALE_OK && accuracy == 1, "labels are integers");
  refused(chorale_train(model, chorale_f32(x, 2, 3), chorale_f32(x, 1, 3), NULL),
          "y has numbers of type 1, but the model takes labels");
  chorale_destroy(model);
  refused(chorale_destroy(model), "this trainer has ended");
  refused(chorale_train(model, chorale_f32(x, 2, 3), chorale_i32(labels, 1, 3), NULL), "this trainer has ended");
  refused(chorale_create("plain", CHORALE_ALONE, 1, &model), "this library has no model \"plain\"");
  report(model == NULL && strstr(chorale_message(), "plane, kinds") != NULL, "its models are named");
  refused(chorale_create("plane", 0, 1, &model), "got the communicator 0, but the model trains alone");
  refused(chorale_create("plane", CHORALE_ALONE, 1, NULL), "the argument trainer is NULL");
}

int main(void) {
  char const* folder = getenv("TEST_TMPDIR");
  train_and_keep(folder == NULL ? "." : folder);
  classify();
  return failed != 0;
}
