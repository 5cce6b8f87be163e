#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs gdb over test/gdb/program.cpp with tools/gdb/chorale_printers.py, and compares what it prints."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

NAME = "gdb prints chorale's types in a line"
SHOWN = {
    "shape": "(3, 4)", "row": "(7,)", "of": "(B, 40, 64) of float", "ragged": "(B, ?) of int",
    "tensor": "(B, 3) of float, value 2", "variable": "dense/kernel (3, 4): 3: 34.5, 16, 0.25",
    "layout": "2 variables, 16 parameters in 1 bucket: dense/kernel (3, 4), dense/bias (4,)",
    "view": "2 variables, 16 parameters in 1 bucket: dense/kernel (3, 4), dense/bias (4,)",
    "variables": "2 variables in 64 numbers: dense/kernel (3, 4), dense/bias (4,)",
    "gradients": "loss 34.5 of 16 rows; 2 variables, 64 numbers", "rows": "3 rows of Pixels"}

for tool in ("gdb", "g++"):
    if shutil.which(tool) is None:
        print(f"SKIPPED: {NAME} (no {tool} here. Try: apt-get install {tool})")
        sys.exit(0)
with tempfile.TemporaryDirectory() as folder:
    program = pathlib.Path(folder, "program")
    subprocess.run(["g++", "-std=c++20", "-O0", "-g", "-Iinclude", "test/gdb/program.cpp", "-o", program], check=True)
    commands = ["set debuginfod enabled off", "source tools/gdb/chorale_printers.py", "break look_at", "run", "up"]
    asked = [f'python print("shown {name} = " + str(gdb.parse_and_eval("{name}").format_string()))' for name in SHOWN]
    done = subprocess.run(["gdb", "-q", "-nx", "-batch", *(word for one in commands + asked for word in ("-ex", one)),
                           program], capture_output=True, text=True, check=False)
if "ptrace: Operation not permitted" in done.stderr:
    print(f"SKIPPED: {NAME} (this system lets no process trace another one)")
    sys.exit(0)
lines = dict(line.removeprefix("shown ").split(" = ", 1) for line in done.stdout.splitlines() if line.startswith("shown "))
wrong = [f"  {name}: {lines.get(name)}, not {text}" for name, text in SHOWN.items() if lines.get(name) != text]
print("\n".join(wrong + ([done.stdout, done.stderr] if wrong else [])))
print(f"{'FAILED' if wrong else 'PASSED'}: {NAME}")
sys.exit(bool(wrong))
