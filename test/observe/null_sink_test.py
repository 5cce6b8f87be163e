#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A function that tells NullSink everything has, instruction by instruction, the code of one that tells nothing."""
import re
import shutil
import subprocess
import sys

COMPILERS = {
    "g++": ["-std=c++20", "-O2", "-march=x86-64-v3"],
    "clang++": ["-std=c++20", "-O2", "-march=x86-64-v3"],
}
SOURCE = "test/observe/null_sink.cpp"


def instructions(assembly, function):
    """The lines of a function, with its labels numbered as they appear, and without what is for the debugger."""
    body = re.search(rf"^{function}:[^\n]*\n(.*?)^\s*\.size\s+{function}", assembly, re.MULTILINE | re.DOTALL)[1]
    lines = [re.sub(r"\s+#.*", "", line) for line in body.splitlines()]
    lines = [line for line in lines if line.strip() and not re.match(r"\s*\.(cfi|p2align|loc|section|text)|\s*#", line)]
    names = {}
    return [re.sub(r"\.L\w+", lambda label: names.setdefault(label[0], f"L{len(names)}"), line) for line in lines]


def main():
    failed = False
    for compiler, flags in COMPILERS.items():
        if not shutil.which(compiler):
            print(f"SKIPPED: there is no {compiler}")
            continue
        assembly = subprocess.run([compiler, *flags, "-Iinclude", "-S", "-o", "-", SOURCE], capture_output=True,
                                  text=True, check=True).stdout
        plain = instructions(assembly, "without_a_sink")
        for function in ["with_null_sink", "with_fanout_of_null_sinks"]:
            same = instructions(assembly, function) == plain
            print(f"{'PASSED' if same else 'FAILED'}: {compiler}: {function} has the {len(plain)} lines of one without")
            failed |= not same
        same = instructions(assembly, "with_a_sink") == plain
        print(f"{'FAILED' if same else 'PASSED'}: {compiler}: a sink that counts has other code")
        failed |= same
    return failed


sys.exit(main())
