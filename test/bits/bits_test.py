#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What small networks learn under each strategy has the bits of one device where Reproducible promises it, as tools/bits
reads it."""
import importlib.machinery
import importlib.util
import subprocess
import sys

loader = importlib.machinery.SourceFileLoader("bits", "tools/bits")
bits = importlib.util.module_from_spec(importlib.util.spec_from_loader("bits", loader))
loader.exec_module(bits)
launch, program = sys.argv[1:]
failed = False


def report(good, what, said=""):
    global failed
    failed |= not good
    print((f"{said}\n" if not good else "") + f"{'PASSED' if good else 'FAILED'}: {what}")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


cells = bits.cells(output(program) + output(launch, "-n", "3", "--", program, "ranks"))
rounded = ("by ring", "direct", "ring")                                    # their sums have another order
for network in ("cnn", "lstm", "perceptron", "gpt"):
    of_all = {name: found[0] for name, found in cells.items() if name.startswith(network + " ")}
    same   = {name: found for name, found in of_all.items() if not name.endswith(rounded)}
    others = {name: found for name, found in of_all.items() if name.endswith(rounded)}
    first  = of_all.get(network + " one device")
    report(len(same) >= 5 and set(same.values()) == {first}, f"{network}: {len(same)} strategies have the bits of one device",
           same)
    report(len(others) >= 2 and first not in others.values(), f"{network}: other orders of sums have other bits", others)

two = "cnn one device: 0123456789abcdef 0000000000000000\n[w1] cnn one device: 0123456789abcdee 0000000000000000\n"
report(bits.cells(two)["cnn one device"][0] == "ranks differ", "ranks that differ are told", two)
sys.exit(failed)
