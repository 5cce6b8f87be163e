#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes functional.safetensors: Keras' functional ticket model in small, as numbers to compare with.

    python3 test/golden/make_functional.py test/golden/functional.safetensors

Made with Keras 3 on JAX in float64, stored as float32; README.md has the tolerances. Inputs, targets and variables are
those of `keras_numbers.value`, not stored.
"""
import sys

import keras_numbers
from keras_numbers import around_zero, value

import jax
import keras
import numpy as np

ROWS, WORDS, WIDTH, TITLE, BODY, TAGS, DEPARTMENTS = 6, 20, 3, 5, 7, 4, 3
TITLE_UNITS, BODY_UNITS, STEPS, RATE = 4, 2, 5, 0.5
FEATURES = TITLE_UNITS + BODY_UNITS + TAGS
VARIABLES = [
    ("title_words/embeddings", (WORDS, WIDTH), 0x101, 1), ("body_words/embeddings", (WORDS, WIDTH), 0x202, 1),
    ("title_reader/kernel", (WIDTH, 4 * TITLE_UNITS), 0x303, 2),
    ("title_reader/recurrent_kernel", (TITLE_UNITS, 4 * TITLE_UNITS), 0x404, 2),
    ("title_reader/bias", (4 * TITLE_UNITS,), 0x505, 1),
    ("body_reader/kernel", (WIDTH, 4 * BODY_UNITS), 0x606, 2),
    ("body_reader/recurrent_kernel", (BODY_UNITS, 4 * BODY_UNITS), 0x707, 2),
    ("body_reader/bias", (4 * BODY_UNITS,), 0x808, 1),
    ("priority/kernel", (FEATURES, 1), 0x909, 1), ("priority/bias", (1,), 0xA0A, 1),
    ("department/kernel", (FEATURES, DEPARTMENTS), 0xB0B, 1), ("department/bias", (DEPARTMENTS,), 0xC0C, 1)]


def network(dtype):
    keras.config.set_floatx(dtype)
    title = keras.Input((TITLE,), dtype="int32")
    body = keras.Input((BODY,), dtype="int32")
    tags = keras.Input((TAGS,))
    layers = keras.layers
    features = layers.concatenate([
        layers.LSTM(TITLE_UNITS, name="title_reader")(layers.Embedding(WORDS, WIDTH, name="title_words")(title)),
        layers.LSTM(BODY_UNITS, name="body_reader")(layers.Embedding(WORDS, WIDTH, name="body_words")(body)), tags])
    return keras.Model([title, body, tags], [layers.Dense(1, name="priority")(features),
                                             layers.Dense(DEPARTMENTS, name="department")(features)])


def name_of(variable):
    layer, *_, name = variable.path.split("/")
    return f"{layer}/{name}"


def compute(dtype):
    model = network(dtype)
    initial = {name: around_zero(shape, salt, scale).astype(dtype) for name, shape, salt, scale in VARIABLES}
    names = [name_of(v) for v in model.trainable_variables]
    variables = [initial[name] for name in names]
    rest = [v.value for v in model.non_trainable_variables]
    ids = lambda shape, salt: np.floor(value(int(np.prod(shape)), salt) * WORDS).astype(np.int32).reshape(shape)
    inputs = [ids((ROWS, TITLE), 0xD0D), ids((ROWS, BODY), 0xE0E), around_zero((ROWS, TAGS), 0xF0F, 2).astype(dtype)]
    priority = np.round(value(ROWS, 0x111)).astype(dtype).reshape(ROWS, 1)
    department = np.floor(value(ROWS, 0x222) * DEPARTMENTS).astype(np.int32).reshape(ROWS, 1)

    def loss(trained):
        (a, b), _ = model.stateless_call(trained, rest, inputs)
        of_priority = keras.losses.BinaryCrossentropy(from_logits=True)(priority, a)
        of_department = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(department, b)
        return of_priority + 0.2 * of_department

    tensors, losses = {}, []
    for step in range(STEPS):
        now, gradients = jax.value_and_grad(loss)(variables)
        if step == 0:
            tensors |= {f"gradient/{name}": np.asarray(g) for name, g in zip(names, gradients)}
        losses.append(float(now))
        variables = [v - RATE * g for v, g in zip(variables, gradients)]
    tensors["losses"] = np.array(losses)
    (a, b), _ = model.stateless_call(variables, rest, inputs)
    tensors["outputs"] = np.concatenate([np.asarray(a), np.asarray(b)], axis=1)
    return tensors


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_functional.py", compute)
