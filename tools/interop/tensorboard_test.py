#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tensorboard_test.py RUN_FOLDER: what TensorBoard's own reader finds in the event files that RUN_FOLDER writes."""
import csv
import importlib.util
import math
import pathlib
import subprocess
import sys
import tempfile

FIRST_STEP_AGAIN = 50


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


def checks(folder):
    """(what, whether it holds), for a run that was started again at a step that it had passed."""
    from tensorboard.backend.event_processing import event_accumulator, event_file_loader

    reader = event_accumulator.EventAccumulator(str(folder / "train"), {"scalars": 0, "histograms": 0, "images": 0})
    reader.Reload()
    with open(folder / "scalars.csv", newline="", encoding="utf-8") as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}      # of a step that comes twice, the later one
    for tag in ["loss", "accuracy"]:
        curve = reader.Scalars(tag)
        yield f"has each step of {tag} once, the overlap of the restart gone", [e.step for e in curve] == sorted(rows)
        yield f"has the values of {tag}", all(close(e.value, float(rows[e.step][tag])) for e in curve)
        yield f"has wall times of {tag} that never decrease", all(a.wall_time <= b.wall_time
                                                                 for a, b in zip(curve, curve[1:]))
    weights = reader.Histograms("weights")
    yield "has a histogram at each tenth step", [e.step for e in weights] == list(range(0, 120, 10))
    yield "has all values in each histogram", all(sum(e.histogram_value.bucket) == e.histogram_value.num == 3
                                                  for e in weights)
    yield "has the picture", [(e.width, e.height, e.encoded_image_string[:4]) for e in reader.Images("pixel")][-1:] == [
        (1, 1, b"\x89PNG")]

    plugins = set()
    files = sorted((folder / "train").iterdir())
    for file in files:
        for event in event_file_loader.EventFileLoader(str(file)).Load():
            plugins |= {value.metadata.plugin_data.plugin_name for value in event.summary.value}
    yield "migrates every value to the format of version 2", plugins == {"scalars", "histograms", "images"}
    yield "has one file for each start", len(files) == 2


def main():
    if not importlib.util.find_spec("tensorboard"):
        print("SKIPPED: TensorBoard's reader: there is no python package tensorboard")
        return False
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for first_step in [0, FIRST_STEP_AGAIN]:
            subprocess.run([sys.argv[1], folder, str(first_step)], check=True, stdout=subprocess.DEVNULL)
        for what, holds in checks(folder):
            print(f"{'PASSED' if holds else 'FAILED'}: TensorBoard {what}")
            failed |= not holds
    return failed


sys.exit(main())
