#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes masked.safetensors: what Keras computes of rows of different lengths with a mask, as numbers to compare with.

    python3 test/golden/make_masked.py test/golden/masked.safetensors

Made with Keras 3 on JAX in float64, stored as float32; README.md has the tolerances. Each network begins with
Embedding(mask_zero=True), so that id 0 is padding, and ends with Dense; attention is that of a text to itself. The loss
is the sum of all outputs of positions that are not padding, each times a weight. The variables and the weights are those
of `keras_numbers.value`, not stored.
"""
import sys

import keras_numbers
from keras_numbers import around_zero

import jax
import keras
import numpy as np

LENGTHS, WORDS, WIDTH, UNITS, CLASSES = (7, 3, 1, 5, 2), 9, 4, 6, 3
SALTS = (0x2545F491, 0x4F6CDD1D, 0x7F4A7C15, 0x1CE4E5B9, 0x133111EB, 0x5851F42D, 0x101, 0x202, 0x303, 0x404, 0x505)


def ids():
    padded = np.zeros((len(LENGTHS), max(LENGTHS)), np.int32)
    for row, length in enumerate(LENGTHS):
        padded[row, :length] = [(5 * row + 3 * t) % (WORDS - 1) + 1 for t in range(length)]
    return padded


def compute(dtype):
    x, tensors = ids(), {}
    layers = keras.layers
    for name, middle in (("lstm", layers.LSTM(UNITS, dtype=dtype)),
                         ("sequences", layers.LSTM(UNITS, return_sequences=True, dtype=dtype)),
                         ("average", layers.GlobalAveragePooling1D(dtype=dtype)),
                         ("attention", layers.MultiHeadAttention(2, WIDTH // 2, dtype=dtype))):
        padded = keras.Input((max(LENGTHS),), dtype="int32")
        vectors = layers.Embedding(WORDS, WIDTH, mask_zero=True, dtype=dtype)(padded)
        changed = middle(vectors, vectors) if name == "attention" else middle(vectors)
        model = keras.Model(padded, layers.Dense(CLASSES, dtype=dtype)(changed))
        variables = [around_zero(v.shape, salt, 2).astype(dtype) for v, salt in zip(model.trainable_variables, SALTS)]
        valid = (x != 0) if name in ("sequences", "attention") else np.ones(len(LENGTHS), bool)
        weights = np.zeros(valid.shape + (CLASSES,), dtype)
        weights[valid] = around_zero((valid.sum(), CLASSES), 0x11, 2)

        def loss(trained):
            y, _ = model.stateless_call(trained, [v.value for v in model.non_trainable_variables], x)
            return (y * weights).sum(), y

        (_, y), d_variables = jax.value_and_grad(loss, has_aux=True)(variables)
        tensors[f"{name}/y"] = np.asarray(y)[valid]
        for i, d in enumerate(d_variables):
            tensors[f"{name}/{i}"] = np.asarray(d)
    return tensors


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_masked.py", compute)
