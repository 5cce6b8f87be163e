#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes metrics.safetensors: what Keras' metrics that are no means over rows give after each of four batches.

    python3 test/golden/make_metrics.py test/golden/metrics.safetensors

Made with Keras 3 on JAX in float64, stored as float32; README.md has the tolerances. Outputs and targets are those of
`keras_numbers.value`, not stored.
"""
import sys

import keras_numbers
from keras_numbers import around_zero, value

import keras
import numpy as np

ROWS, WIDTH, BATCHES = 50, 4, [16, 16, 16, 2]


class Perplexity(keras.metrics.SparseCategoricalCrossentropy):
    """That of keras_hub, without a mask: the exponential of the mean cross entropy."""

    def result(self):
        return keras.ops.exp(super().result())


def compute(dtype):
    keras.config.set_floatx(dtype)
    logits = around_zero((ROWS, WIDTH), 0x2545F491, 8).astype(dtype)
    shares = value(ROWS * WIDTH, 0x4F6CDD1D).reshape(ROWS, WIDTH).astype(dtype)
    squares = np.arange(ROWS * WIDTH) ** 2                                    # else they would follow the shares
    chances = value(squares[-1] + 1, 0x7F4A7C15)[squares].reshape(ROWS, WIDTH).astype(dtype)
    bits = (chances < shares).astype(dtype)                                  # 1 more often where a share is large
    signs = (chances * 8 - 4 < logits).astype(dtype)
    numbers = around_zero((ROWS, WIDTH), 0x7F4A7C15, 4).astype(dtype)
    labels = np.where(np.arange(ROWS) % 3 == 0, logits.argmax(axis=1), np.arange(ROWS) * 7 % (WIDTH - 1))
    one_hot = np.eye(WIDTH, dtype=dtype)[labels]
    metrics = keras.metrics
    cases = {
        "precision": (metrics.Precision(thresholds=0.75), shares, bits),
        "recall": (metrics.Recall(thresholds=0.75), shares, bits),
        "f1": (metrics.F1Score(average="micro", threshold=0.75), shares, bits),
        "auc": (metrics.AUC(), shares, bits),
        "auc_20": (metrics.AUC(num_thresholds=20), shares, bits),
        "auc_of_logits": (metrics.AUC(from_logits=True), logits, signs),
        "precision_recall_auc": (metrics.AUC(curve="PR"), shares, bits),
        "precision_recall_auc_20": (metrics.AUC(num_thresholds=20, curve="PR"), shares, bits),
        "class_1_precision": (metrics.Precision(class_id=1, top_k=1), shares, one_hot),
        "class_1_recall": (metrics.Recall(class_id=1, top_k=1), shares, one_hot),
        "f1_of_classes": (metrics.F1Score(), shares, one_hot),
        "accuracy": (metrics.SparseCategoricalAccuracy(), logits, labels),
        "mean_iou": (metrics.MeanIoU(WIDTH, sparse_y_pred=False), logits, labels),
        "perplexity": (Perplexity(from_logits=True), logits, labels),
        "root_mean_squared_error": (metrics.RootMeanSquaredError(), logits, numbers),
    }
    tensors = {}
    for name, (metric, y, wanted) in cases.items():
        results, first = [], 0
        for rows in BATCHES:
            metric.update_state(wanted[first:first + rows], y[first:first + rows])
            results.append(np.asarray(metric.result()))
            first += rows
        tensors[name] = np.stack(results)                                    # (batches), of all rows so far
    return tensors


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_metrics.py", compute)
