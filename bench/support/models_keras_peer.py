#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tickets of bench/models in Keras on TensorFlow: for each line with a number of steps, prints "ms_per_step N", the
median. A step is one tf.function; with --compiled XLA compiles it."""
import argparse
import os
import sys
import time

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf


def network():
    title, body = keras.Input((40,), dtype="int32"), keras.Input((200,), dtype="int32")
    tags = keras.Input((12,))
    x = keras.layers.concatenate([keras.layers.LSTM(128)(keras.layers.Embedding(10_000, 64)(title)),
                                  keras.layers.LSTM(32)(keras.layers.Embedding(10_000, 64)(body)), tags])
    return keras.Model([title, body, tags], [keras.layers.Dense(1)(x), keras.layers.Dense(4)(x)])


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("model", choices=("tickets",))
    flags.add_argument("--batch", type=int, required=True)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--compiled", action="store_true")
    args = flags.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    keras.utils.set_random_seed(1)
    net, rule = network(), keras.optimizers.Adam(1e-3)
    rule.build(net.trainable_variables)
    random, n = np.random.default_rng(1), args.batch
    x = [tf.constant(random.integers(0, 10_000, (n, 40)), tf.int32),
         tf.constant(random.integers(0, 10_000, (n, 200)), tf.int32), tf.constant(random.random((n, 12)), tf.float32)]
    priority = tf.constant(np.arange(n).reshape(n, 1) % 2, tf.float32)
    department = tf.constant(random.integers(0, 4, (n, 1)), tf.int32)
    of_priority = keras.losses.BinaryCrossentropy(from_logits=True)
    of_department = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(jit_compile=args.compiled)
    def step():
        with tf.GradientTape() as tape:
            y = net(x, training=True)
            loss = of_priority(priority, y[0]) + 0.2 * of_department(department, y[1])
        rule.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return loss

    for _ in range(3):
        step().numpy()
    print("ready", tf.__version__, flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step().numpy()
            times.append(time.perf_counter() - start)
        print("ms_per_step", sorted(times)[len(times) // 2] * 1e3, flush=True)


if __name__ == "__main__":
    main()
