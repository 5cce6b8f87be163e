# SPDX-License-Identifier: Apache-2.0
"""One measurement of an input pipeline of tf.data or of PyTorch's DataLoader, over the files that bench/input made.

Prints "records_per_s N": the best of some passes. Torch has no reader of TFRecords: it gets a short one in Python that
does not look at checksums, and pictures are decoded by Pillow.
"""
import argparse
import glob
import os
import random
import struct
import time

ROWS, WIDTH = 60_000, 784
SIDES = {"jpeg": (256, 224), "jpeg_64": (64, 56), "chain": (256, 224)}
PASSES = {"tfrecord_4k": 3, "tfrecord_64k": 3, "jpeg": 3, "jpeg_64": 3, "shuffle": 4, "batch": 4, "chain": 3}
KINDS = {"tfrecord_4k": "small", "tfrecord_64k": "large", "jpeg": "jpeg", "jpeg_64": "thumb", "chain": "example"}


def best_of(passes, run):
    best = 0.0
    for _ in range(passes):
        start = time.monotonic()
        rows = run()
        best = max(best, rows / (time.monotonic() - start))
    return best


def with_tensorflow(options, files):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import numpy
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    side, crop = SIDES.get(options.case, (0, 0))
    parallel = None if options.threads == 1 else options.threads

    def augment(jpeg):
        corner = tf.random.uniform([2], 0, side - crop + 1, tf.int32)
        image = tf.io.decode_and_crop_jpeg(jpeg, tf.concat([corner, [crop, crop]], 0), channels=3)
        return tf.image.random_flip_left_right(tf.cast(image, tf.float32) * (1 / 255))

    def parse(record):
        fields = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        found = tf.io.parse_single_example(record, fields)
        return augment(found["image"]), found["label"]

    if options.case in ("shuffle", "batch"):
        x = (numpy.arange(ROWS * WIDTH) % 251).astype(numpy.uint8).reshape(ROWS, WIDTH)
        rows = tf.data.Dataset.from_tensor_slices((x, numpy.zeros(ROWS, numpy.uint8)))
        if options.case == "shuffle":
            rows = rows.shuffle(10_000, seed=1)
        rows = rows.batch(128)
    else:
        rows = tf.data.TFRecordDataset(files)
        if options.case.startswith("jpeg"):
            rows = rows.map(augment).batch(64)
        elif options.case == "chain":
            rows = tf.data.Dataset.from_tensor_slices(files).interleave(
                tf.data.TFRecordDataset, cycle_length=2, block_length=16)
            rows = rows.shuffle(256, seed=1).map(parse, num_parallel_calls=parallel).batch(64)
            rows = rows.prefetch(2) if parallel else rows
        else:
            rows = rows.batch(256)                         # else Python would be what takes time

    def one_pass():
        return sum(len(batch[0]) if isinstance(batch, tuple) else len(batch) for batch in rows)

    return best_of(PASSES[options.case], one_pass)


def records_of(file):
    with open(file, "rb", buffering=1 << 18) as source:
        while header := source.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            yield source.read(length)
            source.read(4)


def image_of(record):
    """The one byte string of an Example that is long: as little of a parser as these files need."""
    at = record.index(b"\xff\xd8\xff")
    return record[at:record.rindex(b"\xff\xd9") + 2]


def with_torch(options, files):
    import io

    import torch
    from torch.utils import data

    torch.set_num_threads(1)
    side, crop = SIDES.get(options.case, (0, 0))
    workers = 0 if options.threads == 1 else options.threads

    class Records(data.IterableDataset):
        def __init__(self, change):
            self.change = change

        def __iter__(self):
            info = data.get_worker_info()
            mine = files if info is None else files[info.id::info.num_workers]
            kept = []
            for record in (record for file in mine for record in records_of(file)):
                if options.case == "chain":
                    kept.append(record)
                    if len(kept) < 256:
                        continue
                    other = random.randrange(len(kept))
                    kept[other], kept[-1] = kept[-1], kept[other]
                    record = kept.pop()
                yield self.change(record)
            random.shuffle(kept)
            yield from map(self.change, kept)

    def augment(jpeg):
        import numpy
        from PIL import Image

        left, top = random.randrange(side - crop + 1), random.randrange(side - crop + 1)
        pixels = numpy.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))[top:top + crop, left:left + crop]
        image = torch.from_numpy(pixels.copy())
        return (torch.flip(image, [1]) if random.random() < 0.5 else image).float().mul_(1 / 255)

    if options.case in ("shuffle", "batch"):
        x = (torch.arange(ROWS * WIDTH) % 251).to(torch.uint8).reshape(ROWS, WIDTH)
        rows = data.TensorDataset(x, torch.zeros(ROWS, dtype=torch.uint8))
        if options.whole:                                  # a tensor of row numbers at a time, instead of row by row
            order = data.RandomSampler(rows) if options.case == "shuffle" else data.SequentialSampler(rows)
            loader = data.DataLoader(rows, sampler=data.BatchSampler(order, 128, False), batch_size=None)
        else:
            loader = data.DataLoader(rows, batch_size=128, shuffle=options.case == "shuffle")
    elif options.case in SIDES:
        change = augment if options.case.startswith("jpeg") else lambda record: (augment(image_of(record)), record[-1])
        loader = data.DataLoader(Records(change), batch_size=64, num_workers=workers)
    else:
        loader = data.DataLoader(Records(lambda record: record), batch_size=256, collate_fn=list)

    def one_pass():
        return sum(len(batch[0]) if options.case in ("shuffle", "batch", "chain") else len(batch) for batch in loader)

    return best_of(PASSES[options.case], one_pass)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("peer", choices=["tensorflow", "torch"])
    flags.add_argument("case", choices=PASSES)
    flags.add_argument("folder")
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--whole", action="store_true", help="torch: index whole batches")
    options = flags.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])
    files = sorted(glob.glob(f"{options.folder}/{KINDS.get(options.case)}-*"))
    rate = (with_tensorflow if options.peer == "tensorflow" else with_torch)(options, files)
    print("records_per_s", rate)


if __name__ == "__main__":
    main()
