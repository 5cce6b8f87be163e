#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tfrecord_test.py TFRECORD_FILES: TensorFlow reads the TFRecord files and Examples that are written here, and the
other way round, byte for byte where the format fixes the bytes. CHORALE_PYTHON names an interpreter that has it."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PACKINGS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}    # our name, TensorFlow's


def record(i):
    """As in tfrecord_files.cpp."""
    return bytes((i * 7 + k * k) % 256 for k in range(i * 37 % 1000))


def checks(program, folder):
    """(what, whether it holds)."""
    import tensorflow as tf

    def ours(*arguments):
        subprocess.run([program, *arguments], check=True)

    def write(name, packing, records):
        with tf.io.TFRecordWriter(str(folder / name), tf.io.TFRecordOptions(PACKINGS[packing])) as to:
            for one in records:
                to.write(one)
        return folder / name

    def example(i):
        features = {
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"row {i}".encode(), b""])),
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i / 4, -1.5, 3e38])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i, -1 - i, -(1 << 63), (1 << 63) - 1])),
            "none": tf.train.Feature(float_list=tf.train.FloatList()),
        }
        return tf.train.Example(features=tf.train.Features(feature=features))

    records = [record(i) for i in range(200)]
    ours("write", folder)
    for packing, theirs in PACKINGS.items():
        read = [one.numpy() for one in tf.data.TFRecordDataset(str(folder / packing), theirs)]
        yield f"reads our records, packed by {packing}", read == records

    plain = write("tf_none", "none", records)
    yield "writes the bytes that we write", plain.read_bytes() == (folder / "none").read_bytes()
    for packing in PACKINGS:
        ours("copy", write(f"tf_{packing}", packing, records), packing, folder / "copy")
        yield f"writes what we read, packed by {packing}", (folder / "copy").read_bytes() == plain.read_bytes()

    examples = [example(i) for i in range(50)]
    parsed = [tf.train.Example.FromString(one.numpy()) for one in tf.data.TFRecordDataset(str(folder / "examples"))]
    yield "finds our features", parsed == examples
    shape = {"name": tf.io.FixedLenFeature([2], tf.string), "x": tf.io.FixedLenFeature([3], tf.float32),
             "label": tf.io.FixedLenFeature([4], tf.int64), "none": tf.io.VarLenFeature(tf.float32)}
    rows = [tf.io.parse_single_example(one, shape) for one in tf.data.TFRecordDataset(str(folder / "examples"))]
    labels = [row["label"].numpy()[1] for row in rows]
    yield "parses our Examples by its own operation", labels == list(range(-1, -51, -1))
    ordered = write("tf_examples", "none", [one.SerializeToString(deterministic=True) for one in examples])
    yield "writes an Example as the bytes that we write", ordered.read_bytes() == (folder / "examples").read_bytes()
    ours("parse", ordered, folder / "again")
    yield "writes Examples that we take apart and put together", (folder / "again").read_bytes() == ordered.read_bytes()


def main():
    if not importlib.util.find_spec("tensorflow"):
        other = os.environ.pop("CHORALE_PYTHON", "")
        for interpreter in filter(shutil.which, other.split(":")):
            found = subprocess.run([interpreter, "-c", "import tensorflow"], capture_output=True, check=False)
            if found.returncode == 0:
                os.execv(interpreter, [interpreter, *sys.argv])
        print("SKIPPED: TFRecord files of TensorFlow: there is no python package tensorflow")
        return False
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    failed = False
    with tempfile.TemporaryDirectory() as name:
        for what, holds in checks(sys.argv[1], pathlib.Path(name)):
            print(f"{'PASSED' if holds else 'FAILED'}: TensorFlow {what}")
            failed |= not holds
    return failed


sys.exit(main())
