#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of JAX on one device of a PJRT plug-in, measured whenever a line asks for them.

    pjrt_peer.py PLUGIN
    in     NET ROWS STEPS             out    us N, microseconds a step, or: no WHY

A step is one program of jax.jit: forward, loss, backward and Adam, whose variables and moments are donated. Each step
gets its batch from the host, and nothing waits before the last one.
"""
import os
import sys
import time

os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = "peer:" + sys.argv[1]
os.environ["JAX_PLATFORMS"] = "peer"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CHARACTERS, LENGTH, WIDTH, HEADS, LAYERS = 65, 64, 128, 4, 4


def cross_entropy(logits, labels):
    logits = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
    log_p = logits - jnp.log(jnp.exp(logits).sum(-1, keepdims=True))
    return -jnp.take_along_axis(log_p, labels[..., None], -1).mean()


def drawn(random, *shape):
    return (random.standard_normal(shape) * 0.05).astype(np.float32)


class LeNet:
    def variables(self, r):
        return {"c": drawn(r, 3, 3, 1, 32), "cb": drawn(r, 32), "d": drawn(r, 5408, 64), "db": drawn(r, 64),
                "e": drawn(r, 64, 10), "eb": drawn(r, 10)}

    def batch(self, r, rows):
        return r.random((rows, 28, 28, 1), np.float32), r.integers(0, 10, rows).astype(np.int32)

    def loss(self, v, x, y):
        x = lax.conv_general_dilated(x, v["c"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")) + v["cb"]
        x = lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(x.reshape(x.shape[0], -1) @ v["d"] + v["db"])
        return cross_entropy(x @ v["e"] + v["eb"], y)


class Gpt:
    def variables(self, r):
        block = lambda: {"n": np.ones(WIDTH, np.float32), "nb": drawn(r, WIDTH), "q": drawn(r, WIDTH, 3 * WIDTH),
                         "qb": drawn(r, 3 * WIDTH), "m": drawn(r, WIDTH, WIDTH), "mb": drawn(r, WIDTH),
                         "o": np.ones(WIDTH, np.float32), "ob": drawn(r, WIDTH), "w": drawn(r, WIDTH, 4 * WIDTH),
                         "wb": drawn(r, 4 * WIDTH), "s": drawn(r, 4 * WIDTH, WIDTH), "sb": drawn(r, WIDTH)}
        return {"t": drawn(r, CHARACTERS, WIDTH), "p": drawn(r, LENGTH, WIDTH), "l": np.ones(WIDTH, np.float32),
                "lb": drawn(r, WIDTH), "b": [block() for _ in range(LAYERS)]}

    def batch(self, r, rows):
        ids = r.integers(0, CHARACTERS, (rows, LENGTH + 1)).astype(np.int32)
        return ids[:, :-1], ids[:, 1:]

    def norm(self, x, scale, shift):
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3) * scale + shift

    def loss(self, v, x, y):
        x = v["t"].at[x].get(mode="promise_in_bounds") + v["p"]
        for b in v["b"]:
            q, k, u = jnp.split(self.norm(x, b["n"], b["nb"]) @ b["q"] + b["qb"], 3, -1)
            heads = lambda z: z.reshape(*z.shape[:2], HEADS, WIDTH // HEADS)
            s = jnp.einsum("bqhd,bkhd->bhqk", heads(q), heads(k)) / np.sqrt(WIDTH // HEADS).astype(np.float32)
            s = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), s, -1e30)
            a = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), heads(u)).reshape(x.shape)
            x = x + a @ b["m"] + b["mb"]
            x = x + jax.nn.gelu(self.norm(x, b["o"], b["ob"]) @ b["w"] + b["wb"], approximate=False) @ b["s"] + b["sb"]
        return cross_entropy(self.norm(x, v["l"], v["lb"]) @ v["t"].T, y)


def make_step(net):
    def step(v, m, s, t, x, y):
        loss, g = jax.value_and_grad(net.loss)(v, x, y)
        t = t + 1
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        s = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, s, g)
        by = lambda w, a, b: w - 1e-3 * (a / (1 - 0.9 ** t)) / (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-7)
        return jax.tree.map(by, v, m, s), m, s, t, loss

    return jax.jit(step, donate_argnums=(0, 1, 2, 3))


made = {}


def seconds(name, rows, steps):
    key = name, rows
    if key not in made:
        net, random = {"lenet": LeNet, "gpt": Gpt}[name](), np.random.default_rng(1)
        v = jax.device_put(net.variables(random))
        zeros = lambda: jax.tree.map(jnp.zeros_like, v)
        made[key] = [make_step(net), (v, zeros(), zeros(), jnp.float32(0)), net.batch(random, rows)]
        seconds(name, rows, 3)
    step, state, (x, y) = made[key]
    begin = time.perf_counter()
    for _ in range(steps):
        *state, loss = step(*state, x, y)
    loss.block_until_ready()
    made[key][1] = state
    return (time.perf_counter() - begin) / steps


print(f"jax {jax.__version__} on {jax.devices()[0].platform}", flush=True)
for line in sys.stdin:
    name, rows, steps = line.split()
    try:
        print(f"us {1e6 * seconds(name, int(rows), int(steps)):.1f}", flush=True)
    except Exception as error:  # pylint: disable=broad-except
        print("no " + " ".join(str(error).split())[:200], flush=True)
