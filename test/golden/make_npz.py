#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_npz.py FOLDER: arrays.npz and packed.npz, as numpy writes arrays: x is (4, 2, 3) bytes, y 4 labels of int32."""
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
arrays = {"x": np.arange(24, dtype=np.uint8).reshape(4, 2, 3), "y": np.array([3, 1, 2, 0], np.int32),
          "zeros": np.zeros((5, 40), np.float32)}
np.savez(folder / "arrays.npz", **arrays)
np.savez_compressed(folder / "packed.npz", **arrays)
