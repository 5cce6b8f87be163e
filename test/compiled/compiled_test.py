#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compiled form of the library, as tools/compiled.py makes it: all that a program includes compiles without a
warning; and with --slow, a program over the compiled library prints what it prints over headers."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

WORK = pathlib.Path(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp()) / "compiled"
FLAGS = ["-std=c++20", "-march=x86-64-v3", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Wpedantic",
         "-Wshadow", "-Wconversion", "-Wno-missing-field-initializers", "-Wno-restrict", "-Werror"]
LIBRARIES = ["-ldnnl", "-lgomp", "-lz", "-lcrypto", "-lpthread", "-ldl"]
PROGRAM = pathlib.Path("test/packages/main.cpp")
failed = False


def report(good, what, said=""):
    global failed
    failed |= not good
    print(("" if good else said[:4000] + "\n") + f"{'PASSED' if good else 'FAILED'}: {what}")


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def compiled(source, *flags):
    return run("g++", *FLAGS, source, *flags)


made = run(sys.executable, "tools/compiled.py", "include", WORK)
number = int((re.match(r"\d+", made.stdout) or ["0"])[0])
report(made.returncode == 0 and number > 1500, f"{number} functions are compiled once", made.stderr)


def times():
    return {path: path.stat().st_mtime_ns for path in WORK.rglob("*.*")}


before = times()
run(sys.executable, "tools/compiled.py", "include", WORK)
report(before == times(), "what has not changed is not written again")

include = f"-I{WORK}/include"
everything = WORK / "everything.cpp"
everything.write_text("#include <chorale/chorale.hpp>\n#include <chorale/processes.hpp>\n")
seen = compiled(everything, include, "-fsyntax-only")
report(seen.returncode == 0, "its headers compile without a warning", seen.stderr)

if not os.environ.get("CHORALE_SLOW"):
    print("SKIPPED: a program over the compiled library prints what it prints over headers: this takes minutes: "
          "tools/test --slow")
    sys.exit(failed)

parts = sorted(WORK.glob("*.cpp"))
parts.remove(everything)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    jobs = pool.map(lambda part: compiled(part, include, "-O2", "-c", "-o", part.with_suffix(".o")), parts)
    for part, done in zip(parts, jobs):
        report(done.returncode == 0, f"the part {part.stem} compiles without a warning", done.stderr)
library = WORK / "libchorale.a"
run("ar", "rcs", library, *[part.with_suffix(".o") for part in parts])
printed = {}
for form, flags in {"headers": ["-Iinclude"], "library": [include]}.items():
    program = WORK / form
    done = compiled(PROGRAM, *flags, "-O2", "-o", program, *([library] if form == "library" else []), *LIBRARIES)
    report(done.returncode == 0, f"a program over the {form} is built", done.stderr)
    printed[form] = run(program).stdout if done.returncode == 0 else form
report(printed["headers"] == printed["library"] != "", "both print the same", "\n".join(printed.values()))
sys.exit(failed)
