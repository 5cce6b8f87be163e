#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes losses.safetensors: Keras' losses with their gradients, and its metrics, as numbers to compare with.

    python3 test/golden/make_losses.py test/golden/losses.safetensors

Made with Keras 3 on JAX in float64, stored as float32; README.md has the tolerances. Losses are sums over rows. Outputs and
targets are those of `keras_numbers.value`, not stored.
"""
import sys

import keras_numbers
from keras_numbers import around_zero, value

import jax
import keras
import numpy as np

ROWS, WIDTH = 9, 5
WEIGHTS = [1.0, 0.5, 2.0, 0.0, 4.0]


def compute(dtype):
    keras.config.set_floatx(dtype)
    outputs = around_zero((ROWS, WIDTH), 0x2545F491, 8).astype(dtype)              # logits, or just numbers
    shares = value(ROWS * WIDTH, 0x4F6CDD1D).reshape(ROWS, WIDTH).astype(dtype) + 0.125
    shares = np.stack([np.roll(row, r) for r, row in enumerate(shares)])     # else the largest is that of the outputs
    shares = shares / shares.sum(axis=1, keepdims=True)                      # probabilities
    labels = np.arange(ROWS) * 7 % WIDTH
    one_hot = np.eye(WIDTH, dtype=dtype)[labels]
    numbers = around_zero((ROWS, WIDTH), 0x7F4A7C15, 4).astype(dtype)
    bits = (np.arange(ROWS * WIDTH) % 3 == 0).astype(dtype).reshape(ROWS, WIDTH)
    losses = keras.losses
    cases = {
        "binary": (losses.BinaryCrossentropy(from_logits=True, reduction="sum"), outputs, bits),
        "binary_smoothed": (losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.25, reduction="sum"), outputs,
                            bits),
        "binary_shares": (losses.BinaryCrossentropy(reduction="sum"), shares, bits),
        "binary_shares_smoothed": (losses.BinaryCrossentropy(label_smoothing=0.25, reduction="sum"), shares, bits),
        "absolute": (losses.MeanAbsoluteError(reduction="sum"), outputs, numbers),
        "huber": (losses.Huber(delta=0.75, reduction="sum"), outputs, numbers),
        "log_cosh": (losses.LogCosh(reduction="sum"), outputs, numbers),
        "poisson": (losses.Poisson(reduction="sum"), shares, bits),
        "hinge": (losses.Hinge(reduction="sum"), outputs, bits),
        "hinge_of_signs": (losses.Hinge(reduction="sum"), outputs, 2 * bits - 1),
        "squared_hinge": (losses.SquaredHinge(reduction="sum"), outputs, bits),
        "divergence": (losses.KLDivergence(reduction="sum"), shares, np.roll(shares, 1, axis=0)),
        "cosine": (losses.CosineSimilarity(reduction="sum"), outputs, numbers),
        "focal": (losses.BinaryFocalCrossentropy(from_logits=True, reduction="sum"), outputs, bits),
        "focal_balanced": (losses.BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.75, gamma=1.5,
                                                          from_logits=True, label_smoothing=0.25, reduction="sum"),
                           outputs, bits),
        "smoothed": (losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.25, reduction="sum"), outputs,
                     one_hot),
        "smoothed_shares": (losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.25, reduction="sum"),
                            outputs, shares),
        "smoothed_probabilities": (losses.CategoricalCrossentropy(label_smoothing=0.25, reduction="sum"), shares,
                                   one_hot),
        "weighted": (losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"), outputs, labels,
                     np.array(WEIGHTS, dtype)[labels]),
    }
    tensors = {}
    for name, (loss, y, *wanted) in cases.items():
        sum_, gradient = jax.value_and_grad(lambda y: loss(wanted[0], y, *wanted[1:]))(y)
        tensors[f"{name}/loss"], tensors[f"{name}/gradient"] = np.asarray(sum_), np.asarray(gradient)
    metrics = {
        "binary_accuracy": (keras.metrics.BinaryAccuracy(threshold=0.0), bits),
        "mean_absolute_error": (keras.metrics.MeanAbsoluteError(), numbers),
        "top_2_accuracy": (keras.metrics.SparseTopKCategoricalAccuracy(k=2), labels),
        "top_2_accuracy_of_shares": (keras.metrics.TopKCategoricalAccuracy(k=2), shares),
    }
    for name, (metric, wanted) in metrics.items():
        metric.update_state(wanted, outputs)
        tensors["metric/" + name] = np.asarray(metric.result())
    return tensors


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_losses.py", compute)
