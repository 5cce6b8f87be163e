# SPDX-License-Identifier: Apache-2.0
"""g++ and clang++ for tests that let them read programs, with chorale.hpp compiled once for all of these."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# What a compiled library declares is read in half the time, where a test has it; what is refused is the same.
DECLARED = pathlib.Path("compiled/include")
FORM = ["-DCHORALE_COMPILED", "-I", str(DECLARED)] if DECLARED.is_dir() else []
FLAGS = ["-std=c++20", "-march=x86-64-v3", *FORM, "-I", "include", "-I", "."]
WORK = pathlib.Path(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp())


def installed(what, one_is_enough=False):
    """The compilers that are installed; the report names those that are not, and skips `what` with them.

    one_is_enough   only the first of them, without tools/test --all"""
    compilers = []
    for compiler in ("g++", "clang++"):
        if not shutil.which(compiler):
            print(f"SKIPPED: {what} with {compiler}: it is not installed")
        elif compilers and one_is_enough and not os.environ.get("CHORALE_ALL"):
            print(f"SKIPPED: {what} with {compiler}: tools/test --all")
        else:
            compilers.append(compiler)
    return compilers


def precompiled(compiler):
    """Compiles chorale.hpp and its neighbours once for all programs: the flags that let this compiler use them."""
    folder = WORK / compiler
    (folder / "chorale").mkdir(parents=True)
    header, made = folder / "all.hpp", folder / "chorale/chorale.hpp.gch"      # g++ looks for this name
    header.write_text("".join(f"#include <chorale/{face}.hpp>\n" for face in ("chorale", "parallel", "solver", "advice")))
    if subprocess.run([compiler, *FLAGS, "-x", "c++-header", str(header), "-o", str(made)], check=False).returncode:
        sys.exit(f"FAILED: chorale.hpp with {compiler}")
    return ["-I", str(folder)] if compiler == "g++" else ["-include-pch", str(made)]


def run_compiler(compiler, file, *more, header=()):
    """Checks the syntax of a program, with more flags.

    header   what precompiled() has returned, if the program may use it"""
    def run(*flags):
        return subprocess.run([compiler, *flags, *FLAGS, *more, "-fsyntax-only", str(file)], capture_output=True,
                              text=True, env={**os.environ, "LC_ALL": "C"}, check=False)

    done = run(*header)
    return run() if header and "frontend command failed" in done.stderr else done     # clang 14 crashes at times
