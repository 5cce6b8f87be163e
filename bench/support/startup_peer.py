#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""startup_peer.py torch | keras: imports, makes an MLP, and takes its first steps. Prints the clock in nanoseconds when
the packages are imported ("started") and when the first step has ended ("stepped"), and the median of later steps in
milliseconds ("ms_per_step")."""
import os
import sys
import time

ROWS, LATER = 64, 30


def torch_step():
    import torch
    from torch import nn
    started = time.monotonic_ns()
    x, y = torch.rand(ROWS, 784), torch.arange(ROWS) % 10
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    loss, rule = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters())

    def step():
        rule.zero_grad()
        value = loss(net(x), y)
        value.backward()
        rule.step()
    return started, step


def keras_step():
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras
    import numpy as np
    started = time.monotonic_ns()
    x, y = np.random.default_rng(1).random((ROWS, 784), np.float32), np.arange(ROWS) % 10
    net = keras.Sequential([keras.Input((784,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)])
    net.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return started, lambda: net.train_on_batch(x, y)


started, step = {"torch": torch_step, "keras": keras_step}[sys.argv[1]]()
step()
stepped = time.monotonic_ns()
times = []
for _ in range(LATER):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
print(f"started {started}\nstepped {stepped}\nms_per_step {sorted(times)[LATER // 2] * 1e3}")
