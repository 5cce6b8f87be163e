#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_npz.py FOLDER: arrays.npz and packed.npz, as numpy writes arrays: x is (4, 2, 3) bytes, y 4 labels of int32; and
defaults.npz, with the types that numpy has where a program names none."""
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
arrays = {"x": np.arange(24, dtype=np.uint8).reshape(4, 2, 3), "y": np.array([3, 1, 2, 0], np.int32),
          "zeros": np.zeros((5, 40), np.float32)}
np.savez(folder / "arrays.npz", **arrays)
np.savez_compressed(folder / "packed.npz", **arrays)

rows = np.arange(24).reshape(4, 2, 3)                       # int64
np.savez(folder / "defaults.npz", x=rows / 2, columns=np.asfortranarray(rows / 2), y=np.array([3, 1, 2, 0]),
         large=np.array([1, 2**31, 2**53 + 1, -1]), halves=(rows / 2).astype(np.float16), one=np.array(7),
         mask=rows % 2 == 0, nan=np.array([np.nan, np.inf, 1e300, 0.5]))
