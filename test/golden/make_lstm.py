#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes lstm.safetensors: the states of Keras' LSTM and their gradients, as numbers to compare with.

    python3 test/golden/make_lstm.py test/golden/lstm.safetensors

Made with Keras 3 on JAX in float64, stored as float32; README.md has the tolerances. The loss is the sum of all outputs,
each times a weight. x, the variables and the weights are those of `keras_numbers.value`, not stored.
"""
import sys

import keras_numbers
from keras_numbers import around_zero

import jax
import keras
import numpy as np

ROWS, STEPS, CHANNELS, UNITS = 5, 6, 4, 7


def compute(dtype):
    x = around_zero((ROWS, STEPS, CHANNELS), 0x11, 4).astype(dtype)
    variables = [around_zero((CHANNELS, 4 * UNITS), 0x2545F491, 2).astype(dtype),
                 around_zero((UNITS, 4 * UNITS), 0x4F6CDD1D, 2).astype(dtype),
                 around_zero((4 * UNITS,), 0x7F4A7C15, 1).astype(dtype)]
    tensors = {}
    for name, sequences in (("last", False), ("sequences", True)):
        layer = keras.layers.LSTM(UNITS, return_sequences=sequences, dtype=dtype)
        layer.build(x.shape)
        shape = (ROWS, STEPS, UNITS) if sequences else (ROWS, UNITS)
        weights = around_zero(shape, 0x1CE4E5B9, 2).astype(dtype)

        def loss(trained, x):
            y, _ = layer.stateless_call(trained, [v.value for v in layer.non_trainable_variables], x)
            return (y * weights).sum(), y

        (_, y), (d_variables, d_x) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(variables, x)
        tensors[f"{name}/y"], tensors[f"{name}/x"] = np.asarray(y), np.asarray(d_x)
        for variable, d in zip(("kernel", "recurrent_kernel", "bias"), d_variables):
            tensors[f"{name}/{variable}"] = np.asarray(d)
    return tensors


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_lstm.py", compute)
