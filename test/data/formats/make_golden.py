#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints test/data/formats/golden.hpp: files and messages as others write them, to compare with.

    /usr/bin/python3 test/data/formats/make_golden.py > test/data/formats/golden.hpp

Needs Debian's python3-protobuf 3.21, python3-numpy 1.24 and python3-torch 1.13. TFRecord frames and PNG files are made
here, from their definition, with Python's own gzip and zlib.
"""
import gzip
import io
import struct
import zlib

import numpy
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto


def messages(packed):
    """The classes of tf.train.Example, from their definition; in files of their own, so that both kinds can exist."""
    file = descriptor_pb2.FileDescriptorProto(name=f"example_{packed}.proto", package=f"e{packed}", syntax="proto3")

    def message(name, *fields):
        m = file.message_type.add(name=name)
        for number, (field, kind, label) in enumerate(fields, 1):
            f = m.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                f.type, f.type_name = FIELD.TYPE_MESSAGE, f".e{packed}.{kind}"
            else:
                f.type = kind
                if label == FIELD.LABEL_REPEATED and kind != FIELD.TYPE_BYTES:
                    f.options.packed = bool(packed)
        return m

    one, many = FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED
    message("BytesList", ("value", FIELD.TYPE_BYTES, many))
    message("FloatList", ("value", FIELD.TYPE_FLOAT, many))
    message("Int64List", ("value", FIELD.TYPE_INT64, many))
    feature = message("Feature", ("bytes_list", "BytesList", one), ("float_list", "FloatList", one),
                      ("int64_list", "Int64List", one))
    feature.oneof_decl.add(name="kind")
    for f in feature.field:
        f.oneof_index = 0
    features = message("Features", ("feature", "Features.FeatureEntry", many))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_MESSAGE, type_name=f".e{packed}.Feature", label=one)
    message("Example", ("features", "Features", one))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(f"e{packed}.Example"))


def example(packed):
    e = messages(packed)()
    of = e.features.feature
    of["image"].bytes_list.value.extend([b"\x00\xff\x10", b"", b"png"])
    of["label"].int64_list.value.extend([7])
    of["many"].int64_list.value.extend([0, 1, 127, 128, 300, -1, 2**63 - 1, -(2**63)])
    of["weights"].float_list.value.extend([0.0, 1.5, -2.25, 3.4028234663852886e38, float("inf")])
    of["none"].float_list.SetInParent()
    of["unset"].SetInParent()
    data = e.SerializeToString(deterministic=True)               # sorts the map
    assert type(e).FromString(data) == e
    return data


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(*records):
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + masked(length) + record + masked(record)
    return out


def npy(array, version=None):
    to = io.BytesIO()
    numpy.lib.format.write_array(to, array, version=version)
    return to.getvalue()


def png(width, height, depth, colour, rows, *chunks):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    body = chunk(b"IHDR", head) + b"".join(chunk(*c) for c in chunks) + chunk(b"IDAT", data)
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def resized(height, width):
    image = torch.arange(60) * 37 % 256
    image = image.reshape(1, 5, 4, 3).permute(0, 3, 1, 2).float()
    out = torch.nn.functional.interpolate(image, (height, width), mode="bilinear", align_corners=False)
    return out[0].permute(1, 2, 0).numpy().astype("<f4").tobytes()


GOLDEN = {
    "tfrecord": ('three records: "", "chorale", 24 bytes from 0 to 23', tfrecord(b"", b"chorale", bytes(range(24)))),
    "tfrecord_gzip": ("the same, packed by gzip", gzip.compress(tfrecord(b"", b"chorale", bytes(range(24))), mtime=0)),
    "tfrecord_zlib": ("the same, packed by zlib", zlib.compress(tfrecord(b"", b"chorale", bytes(range(24))))),
    "example": ("an Example of six features, as protobuf writes it", example(1)),
    "example_unpacked": ("the same, its lists not packed", example(0)),
    "npy_f4": ("(2, 3) floats: 0, 0.5, 1, ..", npy(numpy.arange(6, dtype="<f4").reshape(2, 3) / 2)),
    "npy_i8": ("three int64: -1, 0, 2^40, format 2.0", npy(numpy.array([-1, 0, 2**40], "<i8"), (2, 0))),
    "npy_u1": ("one uint8 without dimensions: 7", npy(numpy.array(7, "u1"))),
    "npy_fortran": ("(2, 3) floats, column by column", npy(numpy.asfortranarray(numpy.zeros((2, 3), "<f4")))),
    "npy_big": ("two big-endian int16", npy(numpy.array([1, 2], ">i2"))),
    "png_rgb": ("(2, 2) pixels: red, green; blue, 10 20 30",
                png(2, 2, 8, 2, [[255, 0, 0, 0, 255, 0], [0, 0, 255, 10, 20, 30]])),
    "png_palette": ("(1, 3) pixels of two bits each: colours 2, 0, 1 of a palette 1 2 3, 4 5 6, 7 8 9",
                    png(3, 1, 2, 3, [[0b10000100]], (b"PLTE", bytes(range(1, 10))))),
    "png_grey16": ("(1, 2) pixels of 16 bits: 0x8080, 0xffff", png(2, 1, 16, 0, [[0x80, 0x80, 0xFF, 0xFF]])),
    "png_alpha": ("(1, 2) pixels: 200 100 50 wholly there, and not at all",
                  png(2, 1, 8, 6, [[200, 100, 50, 255, 200, 100, 50, 0]])),
    "resized_3_7": ("(5, 4, 3) numbers 37 i mod 256 as (3, 7, 3) floats, by torch", resized(3, 7)),
    "resized_8_2": ("the same as (8, 2, 3) floats", resized(8, 2)),
    "npy_bool": ("two bool", npy(numpy.array([True, False]))),
}

print("// SPDX-License-Identifier: Apache-2.0\n//\n// Printed by make_golden.py, in hexadecimal.\n#pragma once\n")
print("namespace golden {")
for name, (what, data) in GOLDEN.items():
    print(f"\n/// {what[0].upper()}{what[1:]}.\ninline constexpr auto {name} =")
    text = data.hex()
    lines = [text[i : i + 108] for i in range(0, len(text), 108)]
    print("\n".join(f'    "{line}"' for line in lines) + ";")
print("\n}  // namespace golden")
