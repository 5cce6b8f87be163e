#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes optimizers.safetensors: groups of variables, moving averages and schedules, as numbers to compare with.

    python3 test/golden/make_optimizers.py test/golden/optimizers.safetensors

Made with Keras 3 and Optax on JAX in float64, stored as float32; README.md has the tolerances. Three variables take ten
steps; variables and gradients are those of `keras_numbers.value`, not stored.
"""
import sys

import keras_numbers
from keras_numbers import around_zero

import jax.numpy as jnp
import keras
import numpy as np
import optax

STEPS = 10
SHAPES = {"layer/kernel": (4, 3), "layer/bias": (3,), "head/kernel": (5,)}


def gradients(step, dtype):
    return {name: around_zero(shape, 0x3C6EF372 * i + 0x5851F42D * (step + 1), 4).astype(dtype)
            for i, (name, shape) in enumerate(SHAPES.items())}


def initial(dtype):
    return {name: around_zero(shape, 0x2545F491 * (i + 1), 2).astype(dtype)
            for i, (name, shape) in enumerate(SHAPES.items())}


def by_groups(dtype):
    """The kernel of the layer as it is, its bias with half the rate and no decay; the head is frozen."""
    labels = {"layer/kernel": "plain", "layer/bias": "bias", "head/kernel": "frozen"}
    adamw = lambda rate, decay: optax.adamw(rate, b1=0.9, b2=0.999, eps=1e-7, weight_decay=decay)
    rule = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.multi_transform({"plain": adamw(0.02, 0.1), "bias": adamw(0.01, 0.0), "frozen": optax.set_to_zero()},
                              labels))
    w = {name: jnp.asarray(x) for name, x in initial(dtype).items()}
    state = rule.init(w)
    for step in range(STEPS):
        g = {name: jnp.asarray(x) for name, x in gradients(step, dtype).items()}
        g["head/kernel"] = jnp.zeros_like(g["head/kernel"])                  # frozen: it does not count in the norm
        updates, state = rule.update(g, state, w)
        w = optax.apply_updates(w, updates)
    return {"groups/" + name: np.asarray(x) for name, x in w.items()}


def averages(dtype):
    keras.config.set_floatx(dtype)
    w = [keras.Variable(x) for x in initial(dtype).values()]
    rule = keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_momentum=0.75)
    for step in range(STEPS):
        rule.apply(list(gradients(step, dtype).values()), w)
    made = {"trained/" + name: np.asarray(x) for name, x in zip(SHAPES, w)}
    rule.finalize_variable_values(w)
    return made | {"averages/" + name: np.asarray(x) for name, x in zip(SHAPES, w)}


def rules(dtype):
    """Keras' other optimizers, with a rate at which ten steps tell them apart."""
    keras.config.set_floatx(dtype)
    o = keras.optimizers
    made = {}
    for name, rule in {
        "rmsprop": o.RMSprop(0.01),
        "rmsprop_momentum": o.RMSprop(0.01, rho=0.75, momentum=0.5, epsilon=1e-3),
        "rmsprop_centered": o.RMSprop(0.01, centered=True),
        "rmsprop_both": o.RMSprop(0.01, momentum=0.9, centered=True),
        "nadam": o.Nadam(0.01),
        "lion": o.Lion(0.01),
        "lion_decay": o.Lion(0.01, weight_decay=0.25),
        "lamb": o.Lamb(0.01),
        "lamb_decay": o.Lamb(0.01, weight_decay=0.25, epsilon=1e-3),
    }.items():
        w = [keras.Variable(x) for x in initial(dtype).values()]
        for step in range(STEPS):
            rule.apply(list(gradients(step, dtype).values()), w)
        made |= {f"{name}/{of}": np.asarray(x) for of, x in zip(SHAPES, w)}
    return made


def schedules():
    """Rates of steps 0 to 29: Optax joins schedules as ours, Keras' own warm-up gives the same."""
    joined = optax.join_schedules(
        [optax.linear_schedule(0.0, 0.4, 8), optax.cosine_decay_schedule(0.4, 16, alpha=0.25)], [8])
    keras_own = keras.optimizers.schedules.CosineDecay(0.0, 16, alpha=0.25, warmup_target=0.4, warmup_steps=8)
    rates = np.array([float(joined(step)) for step in range(30)])
    assert np.abs(rates - [float(keras_own(step)) for step in range(30)]).max() < 1e-7
    return {"schedule": rates}


def compute(dtype):
    return by_groups(dtype) | averages(dtype) | rules(dtype) | schedules()


if __name__ == "__main__":
    keras_numbers.make(sys.argv[1], "test/golden/make_optimizers.py", compute)
