#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""device_code.py PROGRAM sm_90: has the program code of a GPU's own for that architecture?

cuobjdump says it; where the toolkit came without, the containers that nvcc writes are read here: for each a header
(magic, version, its size, bytes that follow), then entries (kind: 2 is machine code, sizes, and at byte 28 the
architecture).
"""
import os
import pathlib
import shutil
import struct
import subprocess
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
MACHINE_CODE = 2


def by_cuobjdump(tool, program):
    said = subprocess.run([tool, "--list-elf", program], capture_output=True, text=True, check=True).stdout
    return {word for line in said.splitlines() for word in line.split(".") if word.startswith("sm_")}


def by_reading(program):
    data, found, at = pathlib.Path(program).read_bytes(), set(), -1
    while (at := data.find(MAGIC, at + 1)) >= 0:
        _, header, size = struct.unpack_from("<HHQ", data, at + 4)
        entry, end = at + header, at + header + size
        while entry + 64 <= min(end, len(data)):
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, entry)
            architecture, = struct.unpack_from("<I", data, entry + 28)
            if kind == MACHINE_CODE:
                found.add(f"sm_{architecture}")
            if entry_header + entry_size == 0:
                break
            entry += entry_header + entry_size
    return found


def main(program, wanted):
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    tool = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=f"{home}/bin")
    found = by_cuobjdump(tool, program) if tool else by_reading(program)
    how = "cuobjdump lists" if tool else "its containers, read without cuobjdump, have"
    if wanted not in found:
        print(f"FAILED: the CUDA tests have code for {wanted}: {how} {', '.join(sorted(found)) or 'none'}")
        return 1
    print(f"PASSED: the CUDA tests have code for {wanted}: {how} {', '.join(sorted(found))}")
    return 0


sys.exit(main(*sys.argv[1:3]))
