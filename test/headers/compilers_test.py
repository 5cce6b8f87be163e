#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All headers and a small training program are free of warnings under more flags, compilers and versions of the
language than the library is built with. One program for all headers: a compiler reads each once."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror",
         "-march=x86-64-v3", "-Iinclude", "-xc++", "-"]
# A clang that is newer than the library of g++ 12 finds what that library itself has deprecated since.
QUIET = {"clang++-19": ["-Wno-deprecated-declarations"]}
CASES = [("g++", "c++20"), ("g++", "c++23"), ("clang++", "c++20"), ("clang++", "c++2b"), ("clang++-19", "c++23")]
OF_OTHERS = ("cuda", "nccl", "/mpi", "libtorch")                           # what may not be installed

headers = sorted(path for path in map(str, pathlib.Path("include").rglob("*.hpp"))
                 if not any(name in path for name in OF_OTHERS))
program = "".join(f"#include <{path.removeprefix('include/')}>\n" for path in headers)
program += pathlib.Path("test/packages/main.cpp").read_text()


def compiled(compiler, *flags, text=program, syntax=("-fsyntax-only",)):
    return subprocess.run([compiler, *flags, *syntax, *QUIET.get(compiler, []), *FLAGS], input=text, capture_output=True,
                          text=True, check=False, env={**os.environ, "LC_ALL": "C"})


failed = len(headers) < 300
SLOW = bool(os.environ.get("CHORALE_SLOW"))
COMPILERS = ("g++", "clang++") if os.environ.get("CHORALE_ALL") else ("g++",)
installed = [case for case in CASES if shutil.which(case[0])]
if not SLOW:
    few = [case for case in installed if case[0] in COMPILERS and case[1] == "c++20"]
    print(f"SKIPPED: newer languages and other compilers, {len(installed) - len(few)} of {len(installed)}: tools/test --all "
          "has a second compiler, tools/test --slow has all")
    installed = few
for compiler, language in CASES:
    if (compiler, language) not in installed:
        print(f"SKIPPED: {compiler} -std={language}: it is not installed")
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    results = list(pool.map(lambda case: compiled(case[0], f"-std={case[1]}"), installed))
for (compiler, language), run in zip(installed, results):
    good = run.returncode == 0 and not run.stderr
    failed |= not good
    print(("" if good else run.stderr[:6000] + "\n") + ("PASSED" if good else "FAILED") +
          f": {len(headers)} headers and a program, no warning: {compiler} -std={language}")

# What only an optimiser sees: README's program, and one with most strategies and transports.
README = re.search(r"<!-- main-mirrored -->\n```cpp\n(.*?)```", pathlib.Path("README.md").read_text(), re.DOTALL)[1]
PROGRAMS = {"README.md": README, "test/docs/excerpts.cpp": pathlib.Path("test/docs/excerpts.cpp").read_text()}
OPTIMISED = [(compiler, level, name) for compiler in ("g++", "clang++") for level in ("-O3", "-O2", "-O0") for name in PROGRAMS
             if shutil.which(compiler)]
if not SLOW:
    print(f"SKIPPED: warnings of {len(OPTIMISED) - 1} optimised programs: this takes minutes: tools/test --slow")
jobs = OPTIMISED if SLOW else OPTIMISED[:1]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    results = list(pool.map(lambda job: compiled(job[0], "-std=c++20", "-I.", job[1], "-c", "-o", "/dev/null",
                                                 syntax=(), text=PROGRAMS[job[2]]), jobs))
for (compiler, level, name), run in zip(jobs, results):
    good = run.returncode == 0 and not run.stderr
    failed |= not good
    print(("" if good else run.stderr[:6000] + "\n") + ("PASSED" if good else "FAILED") +
          f": {name}, no warning: {compiler} {level}")

for compiler in dict.fromkeys(case[0] for case in installed):
    run = compiled(compiler, "-std=c++20", "-fno-rtti", text="#include <chorale/trainer/trainer.hpp>\n")
    errors = [line for line in run.stderr.splitlines() if "error:" in line]
    good = len(errors) == 1 and "chorale: " in errors[0] and "-fno-rtti" in errors[0]
    failed |= not good
    print(("" if good else run.stderr[:3000] + "\n") + ("PASSED" if good else "FAILED") +
          f": {compiler} -fno-rtti is a sentence, and no other error")
sys.exit(failed)
