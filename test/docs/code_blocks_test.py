#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every block of C++ in README.md and docs/*.md that has a name: `<!-- name -->` on the line before it.

A name that ends in (fragment) says that the block is what stands inside a function. All are compiled as one program,
each in a namespace, and one by one only when that fails. A block with a module of libtorch is compiled, where libtorch
is, by //test/libtorch.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

COMMAND = ["g++", "-std=c++20", "-fsyntax-only", "-Iinclude", "-x", "c++", "-"]
BLOCK = re.compile(r"^<!-- (?P<name>[^\n]+?) -->\n```cpp\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FRAGMENT = "#include <chorale/chorale.hpp>\n\nusing namespace chorale;\n\nvoid fragment() {{\n{}}}\n"


def blocks():
    """(page and name, program) of each named block."""
    for page in [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").glob("*.md"))]:
        for found in BLOCK.finditer(page.read_text()):
            code = found["code"]
            if "#include <chorale/libtorch/" in code:
                continue
            yield f"{page}: {found['name']}", FRAGMENT.format(code) if found["name"].endswith("(fragment)") else code


def compiled(program):
    return subprocess.run(COMMAND, input=program, capture_output=True, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})


def together(programs):
    """One program of all: includes first, then each in a namespace of its own."""
    lines = [line for program in programs for line in program.splitlines()]
    includes = dict.fromkeys(line for line in lines if line.startswith("#include"))
    return "\n".join(includes) + "\n" + "".join(
        f"namespace block_{i} {{\n{program}}}\n" for i, program in enumerate(programs))


def main():
    all_blocks = list(blocks())
    programs = [program for _, program in all_blocks]
    results = [compiled(together(programs))] * len(programs)
    if any(run.returncode for run in results):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(compiled, programs))
    for (name, _), run in zip(all_blocks, results):
        if run.returncode:
            print(run.stderr[:4000])
        print(f"{'FAILED' if run.returncode else 'PASSED'}: {name}")
    if not all_blocks:
        print("FAILED: there is no named block of C++ in README.md or docs/")
    return 1 if not all_blocks or any(run.returncode for run in results) else 0


sys.exit(main())
