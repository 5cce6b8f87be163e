#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mnist_keras.py FOLDER SEED...: examples/02_mirrored --epochs 12 --lr decay as Keras trains it, with Keras's defaults.

FOLDER has MNIST's IDX files, plain or gzipped. Prints the test's loss and accuracy for each seed.
"""
import gzip
import pathlib
import struct
import sys

import numpy as np
import tensorflow as tf


def idx(folder, prefix):
    path = next(p for p in sorted(pathlib.Path(folder).iterdir()) if p.name.startswith(prefix))
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rank = raw[3]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(struct.unpack(f">{rank}I", raw[4:4 + 4 * rank]))


def scaled(image, label):
    return tf.cast(image, tf.float32)[..., None] / 255, label


def main():
    folder = sys.argv[1]
    train, test = ((idx(folder, f"{part}-images"), idx(folder, f"{part}-labels")) for part in ("train", "t10k"))
    for seed in map(int, sys.argv[2:]):
        tf.keras.utils.set_random_seed(seed)
        net = tf.keras.Sequential([
            tf.keras.layers.Input((28, 28, 1)), tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10)])
        net.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                    optimizer=tf.keras.optimizers.Adam(), metrics=["accuracy"])
        net.fit(tf.data.Dataset.from_tensor_slices(train).map(scaled).cache().shuffle(10_000).batch(64), epochs=12, verbose=0,
                callbacks=[tf.keras.callbacks.LearningRateScheduler(
                    lambda epoch, _: 1e-3 if epoch < 3 else 1e-4 if epoch < 7 else 1e-5)])
        loss, accuracy = net.evaluate(tf.data.Dataset.from_tensor_slices(test).map(scaled).batch(256), verbose=0)
        print(f"Keras {tf.keras.__version__}, seed {seed}: loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


main()
