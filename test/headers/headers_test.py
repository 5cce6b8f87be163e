#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headers_test.py FOLDER FLAGS...: every header of include/chorale/FOLDER, and of the folders in it, compiles alone,
without a warning.

FOLDER is "." for the headers beside the folders.

A program that includes A and then B, where B includes A in the end, compiles both alone: A comes first, and where B's
own lines begin there is nothing that B did not bring. So the headers are cut into chains, each of which includes the
one before it, and a compiler sees each chain once: a third of the work of one header at a time.
"""
import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r"^#include <(chorale/[^>]+)>", re.MULTILINE)


@functools.cache
def brought_by(name):
    """All of our headers that come with this one."""
    found, new = set(), [name]
    while new:
        new = [header for file in new for header in INCLUDE.findall(pathlib.Path("include", file).read_text())
               if header not in found]
        found.update(new)
    return found


def chains(headers):
    """As few chains as possible: a largest matching of each header with one that brings it (Dilworth)."""
    above = {}                                             # header: the next one of its chain
    below = {}

    def joined(header, seen):
        for other in headers:
            if header in brought_by(other) and other not in brought_by(header) and other not in seen:
                seen.add(other)
                if other not in below or joined(below[other], seen):
                    above[header], below[other] = other, header
                    return True
        return False

    for header in headers:
        joined(header, set())
    for header in headers:
        if header not in below:
            chain = [header]
            while chain[-1] in above:
                chain.append(above[chain[-1]])
            yield chain


def complaint(chain, flags):
    """What the compiler says, or nothing."""
    program = "".join(f"#include <{header}>\n" for header in chain)
    run = subprocess.run(["g++", "-std=c++20", *flags, "-Werror", "-I", "include", "-fsyntax-only", "-x", "c++", "-"],
                         input=program, capture_output=True, text=True, check=False)
    return run.stderr or f"g++ ended with {run.returncode}" if run.returncode else ""


def main(folder, *flags):
    pattern = "*.hpp" if folder == "." else "**/*.hpp"
    headers = sorted(str(path.relative_to("include")) for path in pathlib.Path("include/chorale", folder).glob(pattern))
    if not headers:
        print(f"NONE: there is no header in include/chorale/{folder}")
    if not os.environ.get("CHORALE_SLOW"):                 # includes_test.py reads them
        print(f"SKIPPED: each of {len(headers)} headers of {folder} compiles alone: this takes minutes: tools/test --slow")
        return False
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        all_chains = list(chains(headers))
        for chain, said in zip(all_chains, pool.map(lambda chain: complaint(chain, flags), all_chains)):
            for header in chain:
                alone = complaint([header], flags) if said else ""                 # which of them is it?
                print(f"{alone}FAILED: {header} compiles alone" if alone else f"PASSED: {header} compiles alone")
                failed = failed or bool(alone)
            if said and not failed:
                print(f"{said}FAILED: {', '.join(chain)} compile together")
                failed = True
    return failed


sys.exit(main(*sys.argv[1:]))
