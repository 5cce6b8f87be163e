#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints test/data/formats/pictures.hpp: PNG and JPEG files of every kind, and what PIL reads of them.

    python3 test/data/formats/make_pictures.py > test/data/formats/pictures.hpp

Needs NumPy and Pillow (13.0.0). PNG files are made here, from their definition, since Pillow writes few kinds.
"""
import io
import random
import struct
import warnings
import zlib

import numpy
from PIL import Image, ImageCms

warnings.simplefilter("ignore")
WIDTH, HEIGHT = 7, 5
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
KINDS = {0: "grey", 2: "rgb", 3: "palette", 4: "grey_alpha", 6: "rgba"}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(values, depth):
    """A row of samples as bytes."""
    if depth == 16:
        return b"".join(struct.pack(">H", v) for v in values)
    bits = "".join(format(v, f"0{depth}b") for v in values)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(seed, depth, colour, chunks=(), interlaced=False):
    numbers = random.Random(seed)
    n = CHANNELS[colour]
    rows = [[[numbers.randrange(1 << depth) for _ in range(n)] for _ in range(WIDTH)] for _ in range(HEIGHT)]
    data = b""
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        for row in rows[y::dy]:
            if row[x::dx]:
                data += b"\0" + packed([v for pixel in row[x::dx] for v in pixel], depth)
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, interlaced)
    palette = bytes(numbers.randrange(256) for _ in range(3 << min(depth, 8)))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(c for c in chunks if c[4:8] != b"tRNS") +
            (chunk(b"PLTE", palette) if colour == 3 else b"") + b"".join(c for c in chunks if c[4:8] == b"tRNS") +
            chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def pictures():
    for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            for interlaced in (False, True):
                yield (f"{KINDS[colour]} of {depth} bits{', interlaced' if interlaced else ''}",
                       png(depth, depth, colour, interlaced=interlaced))
    yield "a transparent grey", png(1, 8, 0, [chunk(b"tRNS", struct.pack(">H", first(png(1, 8, 0))))])
    yield "a transparent colour", png(1, 8, 2, [chunk(b"tRNS", struct.pack(">HHH", *first(png(1, 8, 2))))])
    yield "a transparent palette", png(1, 2, 3, [chunk(b"tRNS", b"\x00\x80\xff")])
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for name, extra in {
            "gAMA 1.0": [chunk(b"gAMA", struct.pack(">I", 100000))],
            "gAMA 1/2.2": [chunk(b"gAMA", struct.pack(">I", 45455))],
            "sRGB": [chunk(b"sRGB", b"\0")],
            "cHRM": [chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
                     chunk(b"gAMA", struct.pack(">I", 100000))],
            "iCCP": [chunk(b"iCCP", b"sRGB\0\0" + zlib.compress(profile, 9))],
            "sBIT, bKGD and tEXt": [chunk(b"sBIT", b"\5\6\5"), chunk(b"bKGD", struct.pack(">HHH", 9, 9, 9)),
                                    chunk(b"tEXt", b"Title\0x")]}.items():
        yield f"rgb with {name}", png(3, 8, 2, extra)
    yield "grey with gAMA 1.0", png(3, 8, 0, [chunk(b"gAMA", struct.pack(">I", 100000))])
    inks = numpy.add.outer(numpy.arange(16) * 6, numpy.arange(16) * 4)
    inks = numpy.stack([inks, 200 - inks, inks // 2 + 30, inks // 3], -1).astype(numpy.uint8)
    for name, progressive in {"inks": False, "inks, progressive": True}.items():
        file = io.BytesIO()
        Image.fromarray(inks, "CMYK").save(file, "JPEG", quality=95, progressive=progressive)
        yield name, file.getvalue()
        if not progressive:
            at = file.getvalue().index(b"\xff\xee")
            yield "inks without a mark of Adobe", file.getvalue()[:at] + file.getvalue()[at + 16:]


def first(file):
    return numpy.array(Image.open(io.BytesIO(file)))[0, 0].tolist()


def read(file, mode):
    picture = Image.open(io.BytesIO(file))
    if picture.mode.startswith("I"):                        # PIL clips grey of 16 bits to 255: take the upper 8 bits
        picture = Image.fromarray((numpy.array(picture).astype(int) >> 8).astype(numpy.uint8))
    return numpy.array(picture.convert(mode)).tobytes()


def shown(data):
    text = data.hex()
    return "\n".join(f'     "{text[i:i + 112]}"' for i in range(0, len(text), 112)) or '     ""'


print("""// SPDX-License-Identifier: Apache-2.0
// Printed by make_pictures.py. Long, as it is a table.
#pragma once

namespace pictures {

/// A file, and its pixels as PIL reads them in 1, 3 and 4 channels; of a JPEG file not in 4.
struct Picture {
  char const *name, *file, *grey, *rgb, *rgba;
};

inline constexpr Picture all[] = {""")
for name, file in pictures():
    rgba = b"" if file[:2] == b"\xff\xd8" else read(file, "RGBA")
    print(f'    {{"{name}",\n{shown(file)},\n{shown(read(file, "L"))},\n{shown(read(file, "RGB"))},\n{shown(rgba)}}},')
print("""};

}  // namespace pictures""")
