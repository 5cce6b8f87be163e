#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two models of bench/models in Keras on TensorFlow: for each line with a number of steps, prints "ms_per_step N", the
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


def tickets(n):
    title, body = keras.Input((40,), dtype="int32"), keras.Input((200,), dtype="int32")
    tags = keras.Input((12,))
    x = keras.layers.concatenate([keras.layers.LSTM(128)(keras.layers.Embedding(10_000, 64)(title)),
                                  keras.layers.LSTM(32)(keras.layers.Embedding(10_000, 64)(body)), tags])
    net = keras.Model([title, body, tags], [keras.layers.Dense(1)(x), keras.layers.Dense(4)(x)])
    random = np.random.default_rng(1)
    x = [tf.constant(random.integers(0, 10_000, (n, 40)), tf.int32),
         tf.constant(random.integers(0, 10_000, (n, 200)), tf.int32), tf.constant(random.random((n, 12)), tf.float32)]
    priority = tf.constant(np.arange(n).reshape(n, 1) % 2, tf.float32)
    department = tf.constant(random.integers(0, 4, (n, 1)), tf.int32)
    of_priority = keras.losses.BinaryCrossentropy(from_logits=True)
    of_department = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return net, x, keras.optimizers.Adam(1e-3), lambda y: (of_priority(priority, y[0]) +
                                                           0.2 * of_department(department, y[1]))


def resnet(n):
    """torchvision.models.resnet50, but that padding is Keras'."""
    layers = keras.layers

    def conv(x, filters, size, step=1):
        x = layers.Conv2D(filters, size, step, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    images = keras.Input((224, 224, 3))
    x = layers.MaxPooling2D(3, 2, padding="same")(layers.ReLU()(conv(images, 64, 7, 2)))
    for width, blocks, step in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            y = layers.ReLU()(conv(x, width, 1))
            y = conv(layers.ReLU()(conv(y, width, 3, step if i == 0 else 1)), 4 * width, 1)
            x = layers.ReLU()(y + (conv(x, 4 * width, 1, step) if i == 0 else x))
    net = keras.Model(images, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))
    random = np.random.default_rng(1)
    x = tf.constant(random.random((n, 224, 224, 3)), tf.float32)
    labels = tf.constant(random.integers(0, 1000, (n, 1)), tf.int32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return net, x, keras.optimizers.SGD(0.01, momentum=0.9), lambda y: loss(labels, y)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("model", choices=("tickets", "resnet"))
    flags.add_argument("--batch", type=int, required=True)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--compiled", action="store_true")
    args = flags.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    keras.utils.set_random_seed(1)
    net, x, rule, loss_of = {"tickets": tickets, "resnet": resnet}[args.model](args.batch)
    rule.build(net.trainable_variables)

    @tf.function(jit_compile=args.compiled)
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(net(x, training=True))
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
