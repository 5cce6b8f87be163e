# SPDX-License-Identifier: Apache-2.0
"""What the scripts that ask Keras share: numbers from a formula, and files of float32 beside what float64 gives.

Keras 3 on JAX, both from PyPI: pip install keras jax. Import this module before keras.
"""
import json
import os
import struct

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import keras


def value(count, salt):
    """In [0, 1): formula.hpp makes the same bits."""
    i = np.arange(count, dtype=np.int64)
    return ((i * 2654435761 + salt) % 2**32 >> 8).astype(np.float64) * 2.0**-24


def around_zero(shape, salt, scale):
    """(value - 0.5) * scale, with a power of two for the scale: not rounded."""
    return ((value(int(np.prod(shape)), salt) - 0.5) * scale).reshape(shape)


def write_safetensors(path, tensors, made_by):
    header, offset, data = {"__metadata__": {"computed in": "float64", "made by": made_by,
                                             "keras": keras.__version__}}, 0, b""
    for name in sorted(tensors):
        bytes_ = np.ascontiguousarray(tensors[name], dtype="<f4").tobytes()
        end = offset + len(bytes_)
        header[name] = {"dtype": "F32", "shape": list(np.shape(tensors[name])), "data_offsets": [offset, end]}
        offset, data = end, data + bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def make(path, made_by, compute):
    """Writes compute("float64"), and prints how far compute("float32") is from it."""
    exact, rounded = compute("float64"), compute("float32")
    print(f"{'float32 against float64':32} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        error = np.abs(np.asarray(exact[name], np.float64) - np.asarray(rounded[name], np.float64)).max()
        print(f"{name:32} {np.abs(exact[name]).max():9.2e} {error:9.1e}")
    write_safetensors(path, exact, made_by)
