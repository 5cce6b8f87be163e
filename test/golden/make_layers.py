#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes layers.safetensors: outputs and gradients of Keras' layers, one case for each, as numbers to compare with.

    python3 test/golden/make_layers.py test/golden/layers.safetensors

Made with Keras 3 on JAX in float64, stored as float32; README.md has the tolerances. The loss is the sum of all outputs,
each times a weight. Inputs, variables and weights are those of `keras_numbers.value`, not stored. A case has `y`, the
gradients `x0`, `x1` by its inputs, and `v0`, `v1`, .. by its trained variables, in Keras' order.
"""
import sys

import keras_numbers
from keras_numbers import around_zero

import jax
import keras
import numpy as np

L = keras.layers
ROWS = 3


def turned(y):
    """Keras' states of a sequence that was read backward, in the order of the sequence."""
    return y[:, ::-1]


# The tanh of Keras gives float32 in the cell of a SimpleRNN.
SEQUENCE, IMAGE = (6, 4), (5, 4, 6)
CASES = {
    # name: (layer, shapes of inputs, options of the call, what is done to y)
    "lstm_reverse": (lambda d: L.LSTM(5, return_sequences=True, go_backwards=True, dtype=d), [SEQUENCE], {}, turned),
    "gru": (lambda d: L.GRU(5, dtype=d), [SEQUENCE], {}, None),
    "gru_sequences": (lambda d: L.GRU(5, return_sequences=True, dtype=d), [SEQUENCE], {}, None),
    "gru_reverse": (lambda d: L.GRU(5, return_sequences=True, go_backwards=True, dtype=d), [SEQUENCE], {}, turned),
    "simple_rnn": (lambda d: L.SimpleRNN(5, activation=jax.numpy.tanh, dtype=d), [SEQUENCE], {}, None),
    "simple_rnn_reverse": (lambda d: L.SimpleRNN(5, activation=jax.numpy.tanh, go_backwards=True, dtype=d), [SEQUENCE],
                           {}, None),
    "bidirectional": (lambda d: L.Bidirectional(L.GRU(3, return_sequences=True, dtype=d), dtype=d), [SEQUENCE], {},
                      None),
    "rms_norm": (lambda d: L.RMSNormalization(dtype=d), [SEQUENCE], {}, None),
    "group_norm": (lambda d: L.GroupNormalization(groups=2, dtype=d), [IMAGE], {}, None),
    "attention": (lambda d: L.MultiHeadAttention(2, 3, dtype=d), [SEQUENCE, (7, 5)], {}, None),
    "attention_causal": (lambda d: L.MultiHeadAttention(2, 3, dtype=d), [(40, 4)] * 2, {"use_causal_mask": True}, None),
    "conv1d": (lambda d: L.Conv1D(8, 3, strides=2, padding="same", dtype=d), [SEQUENCE], {}, None),
    "conv1d_causal": (lambda d: L.Conv1D(4, 3, padding="causal", dilation_rate=2, groups=2, dtype=d), [SEQUENCE], {},
                      None),
    "conv2d": (lambda d: L.Conv2D(4, (2, 3), padding="same", dtype=d), [IMAGE], {}, None),
    "conv2d_dilated": (lambda d: L.Conv2D(4, 2, dilation_rate=2, dtype=d), [IMAGE], {}, None),
    "conv2d_groups": (lambda d: L.Conv2D(4, 3, padding="same", strides=2, groups=2, dtype=d), [IMAGE], {}, None),
    "depthwise": (lambda d: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same", dtype=d), [IMAGE], {}, None),
    "separable": (lambda d: L.SeparableConv2D(4, 3, dtype=d), [IMAGE], {}, None),
    "transpose": (lambda d: L.Conv2DTranspose(3, 3, strides=2, padding="same", dtype=d), [IMAGE], {}, None),
    "transpose_valid": (lambda d: L.Conv2DTranspose(4, 4, strides=3, dtype=d), [IMAGE], {}, None),
    "max_pool1d": (lambda d: L.MaxPooling1D(3, strides=2, padding="same", dtype=d), [SEQUENCE], {}, None),
    "average_pool1d": (lambda d: L.AveragePooling1D(3, strides=2, padding="same", dtype=d), [SEQUENCE], {}, None),
    "global_average1d": (lambda d: L.GlobalAveragePooling1D(dtype=d), [SEQUENCE], {}, None),
    "global_max1d": (lambda d: L.GlobalMaxPooling1D(dtype=d), [SEQUENCE], {}, None),
    "global_average2d": (lambda d: L.GlobalAveragePooling2D(dtype=d), [IMAGE], {}, None),
    "global_max2d": (lambda d: L.GlobalMaxPooling2D(dtype=d), [IMAGE], {}, None),
    "up_sampling": (lambda d: L.UpSampling2D((2, 3), dtype=d), [IMAGE], {}, None),
    "zero_padding": (lambda d: L.ZeroPadding2D(((1, 2), (0, 3)), dtype=d), [IMAGE], {}, None),
    "cropping": (lambda d: L.Cropping2D(((1, 2), (0, 3)), dtype=d), [IMAGE], {}, None),
    "prelu": (lambda d: L.PReLU(dtype=d), [SEQUENCE], {}, None),
    "prelu_per_channel": (lambda d: L.PReLU(shared_axes=[1, 2], dtype=d), [IMAGE], {}, None),
    "dot": (lambda d: L.Dot(-1, dtype=d), [SEQUENCE, (3, 4)], {}, None),
    "maximum": (lambda d: L.Maximum(dtype=d), [SEQUENCE, SEQUENCE], {}, None),
    "minimum": (lambda d: L.Minimum(dtype=d), [SEQUENCE, SEQUENCE], {}, None),
    "average": (lambda d: L.Average(dtype=d), [SEQUENCE, SEQUENCE, SEQUENCE], {}, None),
}
LISTS = (L.Dot, L.Maximum, L.Minimum, L.Average)


def compute(dtype):
    tensors = {}
    for name, (make, shapes, options, change) in CASES.items():
        layer = make(dtype)
        x = [around_zero((ROWS, *shape), (0x11 + 0x5851F42D * i) % 2**32, 4).astype(dtype)
             for i, shape in enumerate(shapes)]
        of_list = isinstance(layer, LISTS)
        call = (lambda x: [x]) if of_list else (lambda x: x)
        layer(*call(x), **options)                                         # makes the variables
        trained = [around_zero(v.shape, (0x2545F491 + 0x3C6EF372 * i) % 2**32, 2).astype(dtype)
                   for i, v in enumerate(layer.trainable_variables)]

        def output(trained, x):
            y, _ = layer.stateless_call(trained, [v.value for v in layer.non_trainable_variables], *call(x), **options)
            return y if change is None else change(y)

        weights = around_zero(output(trained, x).shape, 0x1CE4E5B9, 2).astype(dtype)

        def loss(trained, x):
            y = output(trained, x)
            return (y * weights).sum(), y

        (_, y), (d_variables, d_x) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(trained, x)
        tensors[f"{name}/y"] = np.asarray(y)
        for i, d in enumerate(d_x):
            tensors[f"{name}/x{i}"] = np.asarray(d)
        for i, d in enumerate(d_variables):
            tensors[f"{name}/v{i}"] = np.asarray(d)
        print(name, [v.path for v in layer.trainable_variables], [y.shape], y.dtype)
    return tensors


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_layers.py", compute)
