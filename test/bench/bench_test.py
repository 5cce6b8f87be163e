#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_test.py FLAGS...: every benchmark compiles, without a warning and without a peer.

They run for minutes, so that no test runs them; that they are read is enough here, and a third of compiling them.
"""
import pathlib
import subprocess
import sys

sys.path.append("test/support")
from one_program import as_one_program

files = sorted(pathlib.Path("bench").glob("*.cpp"))


def complaint(program):
    """What the compiler says, or nothing."""
    run = subprocess.run(["g++", "-std=c++20", *sys.argv[1:], "-Werror", "-I", "include", "-iquote", "bench",
                          "-fsyntax-only", "-x", "c++", "-"], input=program, capture_output=True, text=True, check=False)
    return run.stderr or f"g++ ended with {run.returncode}\n" if run.returncode else ""


together = complaint(as_one_program(files))
said = [complaint(file.read_text()) if together else "" for file in files]         # which of them is it?
for file, alone in zip(files, said):
    print(f"{alone}{'FAILED' if alone else 'PASSED'}: {file} compiles")
if together and not any(said):
    print(f"{together}FAILED: the benchmarks compile together")
if not files:
    print("NONE: there is no benchmark")
sys.exit(1 if together or not files else 0)
