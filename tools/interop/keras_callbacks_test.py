#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""keras_callbacks_test.py PROGRAM: what examples/24_keras_callbacks and the Keras script beside it write.

Both train on the same pictures. Their columns and curves are compared with test/golden/keras_callbacks.json, which
Keras has written (with --make in place of PROGRAM); the script itself runs only where there is Keras. Where there are
TensorBoard and Chromium, a browser opens the page that shows both.
"""
import csv
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
import zlib

SCRIPT = pathlib.Path("examples/24_keras_callbacks.py")
GOLDEN = pathlib.Path("test/golden/keras_callbacks.json")
EPOCHS = 5
SIDE, CLASSES = 28, 10


def npy(kind, shape, content):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + content


def write_pictures(file):
    """A .npz file as that of MNIST: strokes with a place and a slope for each class, in noise. Always the same."""
    draw = random.Random(7)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        for part, n in (("train", 2000), ("test", 500)):
            pictures, labels = bytearray(), bytearray()
            for _ in range(n):
                label = draw.randrange(CLASSES)
                picture = bytearray(value >> 2 for value in draw.randbytes(SIDE * SIDE))
                down, right = draw.randrange(-3, 4), draw.randrange(-3, 4)
                for step in range(12):
                    row = 8 + step + down
                    column = 14 + right + (label % 5 - 2) * (step - 6) // 3 + (6 if label >= 5 and step > 6 else 0)
                    picture[row * SIDE + column] = picture[row * SIDE + column + 1] = draw.randrange(90, 256)
                pictures += picture
                labels.append(label)
            out.writestr(f"x_{part}.npy", npy("|u1", (n, SIDE, SIDE), bytes(pictures)))
            out.writestr(f"y_{part}.npy", npy("|u1", f"({n},)", bytes(labels)))


def fields(message):
    """(number, value) of each field of a protobuf message; a value is a number, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + size]
        at += size


def number_of(value):
    """The number of a Summary.Value: of version 1, or a tensor of one float."""
    if 2 in value:
        return struct.unpack("<f", value[2])[0]
    tensor = dict(fields(value.get(8, b"")))
    content = tensor.get(4) or tensor.get(5)
    return struct.unpack("<f", content)[0] if tensor.get(1) == 1 and content and len(content) == 4 else None


def curves(folder):
    """{run: {tag: [(step, value)]}} of all scalars in the event files of a folder."""
    found = {}
    for file in sorted(folder.glob("**/*tfevents*")):
        content, at = file.read_bytes(), 0
        run = found.setdefault(str(file.parent.relative_to(folder)), {})
        while at + 12 <= len(content):
            size, = struct.unpack_from("<Q", content, at)
            event = dict(fields(content[at + 12:at + 12 + size]))
            at += size + 16
            for key, summary in fields(event.get(5, b"")):
                value = dict(fields(summary))
                number = number_of(value) if key == 1 else None
                if number is not None:
                    run.setdefault(value[1].decode(), []).append((event.get(2, 0), number))
    return found


def written(folder):
    """What a program has left: columns and rows of log.csv, and its curves."""
    with open(folder / "log.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return {"columns": rows[0], "rows": [[float(cell) for cell in row] for row in rows[1:]],
            "curves": curves(folder / "logs")}


def shape(what):
    """All of it but the values."""
    return {"columns": what["columns"], "epochs": [row[0] for row in what["rows"]],
            "curves": {run: {tag: [point[0] for point in points] for tag, points in sorted(tags.items())}
                       for run, tags in sorted(what["curves"].items())}}


def lines_of_code(file, comment):
    text = re.sub(r'""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith(comment))


def agrees(ours, other):
    """(what, whether it holds)"""
    yield "the same columns of log.csv", ours["columns"] == other["columns"]
    yield "the same runs, curves and steps", shape(ours) == shape(other)
    last = {name: (a, b) for name, a, b in zip(ours["columns"], ours["rows"][-1], other["rows"][-1])}
    yield "a learning rate that is the same in each epoch", all(
        math.isclose(a[ours["columns"].index("learning_rate")], b[other["columns"].index("learning_rate")],
                     rel_tol=1e-6) for a, b in zip(ours["rows"], other["rows"]))
    yield f"losses and accuracies alike after {EPOCHS} epochs", all(
        abs(a - b) < 0.15 for name, (a, b) in last.items() if name not in ("epoch", "learning_rate"))
    for name, run, tag in (("loss", "train", "epoch_loss"), ("val_accuracy", "validation", "epoch_accuracy"),
                           ("learning_rate", "train", "epoch_learning_rate")):
        column = [row[ours["columns"].index(name)] for row in ours["rows"]]
        yield f"{tag} of {run} with the values of {name} in log.csv", all(
            math.isclose(value, point[1], rel_tol=1e-5)
            for value, point in zip(column, ours["curves"].get(run, {}).get(tag, []), strict=True))


def different_lines(png):
    """How many lines of pixels of a picture differ from the one above it."""
    at, packed = 8, b""
    while at < len(png):
        size, = struct.unpack_from(">I", png, at)
        if png[at + 4:at + 8] == b"IHDR":
            width, height, _, colour = struct.unpack_from(">IIBB", png, at + 8)
        if png[at + 4:at + 8] == b"IDAT":
            packed += png[at + 8:at + 8 + size]
        at += size + 12
    stride = 1 + width * {0: 1, 2: 3, 6: 4}[colour]
    raw = zlib.decompress(packed)
    return sum(1 for i in range(1, height) if any(raw[i * stride + 1:(i + 1) * stride]) or raw[i * stride] != 2)


def page(folder, runs, tags):
    """(what, whether it holds) of TensorBoard's page over a folder."""
    browsers = map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])
    browser = next((path for path in browsers if path), None)
    lacking = [name for name, there in (("python package tensorboard", importlib.util.find_spec("tensorboard")),
                                        ("Chromium", browser)) if not there]
    if lacking:
        print(f"SKIPPED: TensorBoard's page in a browser: there is no {' and no '.join(lacking)}")
        return
    with tempfile.TemporaryDirectory() as home, subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as server:
        try:
            url = next((found[0] for found in (re.search(r"http://\S+", line) for line in server.stdout) if found), "")
            yield "starts over both", url != ""
            seen = json.load(urllib.request.urlopen(url + "data/plugin/scalars/tags", timeout=60))
            yield f"has the runs {', '.join(runs)}", sorted(seen) == sorted(runs)
            yield f"has {', '.join(tags)} in each of them", all(set(tags) <= set(of) for of in seen.values())

            def browse(*how):
                return subprocess.run(
                    [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-webgl", "--disable-3d-apis",
                     f"--user-data-dir={home}/profile",
                     "--window-size=1500,1000", "--virtual-time-budget=20000", *how, url + "#timeseries"],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=180, check=True).stdout
            dom = browse("--dump-dom").decode(errors="replace")
            yield "shows the runs in a browser", all(run in dom for run in runs)
            yield "shows the names of curves in a browser", all(tag in dom for tag in tags)
            drawn = re.findall(r'<path[^>]*style="[^"]*stroke: ?(rgb[^;]*|#[0-9a-f]+)', dom)
            yield "draws a curve in a colour for each run", len(set(drawn)) >= len(runs)
            picture = pathlib.Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", home)) / "tensorboard.png"
            browse(f"--screenshot={picture}")
            yield "draws a picture that is not blank", different_lines(picture.read_bytes()) > 200
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def run_in(folder, *command):
    folder.mkdir()
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    subprocess.run(list(map(str, command)), cwd=folder, check=True, stdout=subprocess.DEVNULL, env=quiet)
    return written(folder)


def main():
    failed = False

    def tell(subject, checks):
        nonlocal failed
        for what, holds in checks:
            print(f"{'PASSED' if holds else 'FAILED'}: {subject} {what}", flush=True)
            failed |= not holds

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_pictures(folder / "mnist.npz")
        script = [sys.executable, SCRIPT.resolve(), folder / "mnist.npz", EPOCHS]
        if sys.argv[1] == "--make":
            GOLDEN.write_text(json.dumps(run_in(folder / "keras", *script)) + "\n", encoding="utf-8")
            return False
        golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
        both = folder / "both"
        ours = run_in(folder / "ours", pathlib.Path(sys.argv[1]).resolve(), folder / "mnist.npz", EPOCHS)
        shutil.copytree(folder / "ours" / "logs", both / "chorale")
        tell("the port has", agrees(ours, golden))
        port, keras_lines = lines_of_code(SCRIPT.with_suffix(".cpp"), "//"), lines_of_code(SCRIPT, "#")
        tell("the port has", [(f"{port} lines of code where the script has {keras_lines}", port <= keras_lines)])
        runs = ["chorale/train", "chorale/validation"]
        if all(map(importlib.util.find_spec, ["keras", "tensorflow"])):
            keras = run_in(folder / "keras", *script)
            shutil.copytree(folder / "keras" / "logs", both / "keras")
            runs += ["keras/train", "keras/validation"]
            tell("Keras has", [("the columns, runs and curves that are stored", shape(keras) == shape(golden))])
        else:
            print("SKIPPED: the script in Keras: there is no python package keras with tensorflow")
        tell("TensorBoard", page(both, runs, ["epoch_loss", "epoch_accuracy"]))
    return failed


sys.exit(main())
