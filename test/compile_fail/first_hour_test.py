#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs in first_hour/, each with a mistake that the first hour meets, by g++ and by clang++.

A program trains: it calls fit, and evaluate or predict. It says at its head what it expects: `// <name>   expect:
<sentence>`, or `expect: compiles`. Of a refused one a user sees one error, which is that sentence, and above it at most
MOST lines that say how the compiler came to that place in the library. Flags with which the library does not compile are
told in one line as well.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

MOST = 3
FLAGS = ["-std=c++20", "-march=x86-64-v3", "-Iinclude", "-fsyntax-only"]
EXPECT = re.compile(r"^//\s*(\S+)\s+expect:\s*(.+?)\s*$", re.MULTILINE)
ERROR = re.compile(r"^[^:\s]+:\d+:\d+: (?:fatal )?error: (.*)$", re.MULTILINE)
NO_STEP = re.compile(r"In file included from |\s+from |.*in .constexpr. expansion of ")     # lines of no template
WRONG_FLAGS = {"-std=c++17": "Compile with -std=c++20", "-fno-exceptions": "Compile without -fno-exceptions",
               "-fno-rtti": "Compile without -fno-rtti"}


def precompiled(compiler):
    """Compiles chorale.hpp once for all programs: the flags that let this compiler use it."""
    folder = pathlib.Path(os.environ["TEST_TMPDIR"]) / f"first_hour_{compiler}"
    (folder / "chorale").mkdir(parents=True)
    header, made = folder / "all.hpp", folder / "chorale/chorale.hpp.gch"      # g++ looks for this name
    header.write_text("#include <chorale/chorale.hpp>\n")
    if subprocess.run([compiler, *FLAGS[:3], "-x", "c++-header", str(header), "-o", str(made)], check=False).returncode:
        sys.exit(f"FAILED: chorale.hpp with {compiler}")
    return ["-I", str(folder)] if compiler == "g++" else ["-include-pch", str(made)]


def output_of(compiler, flags, file):
    run = subprocess.run([compiler, *flags, str(file)], capture_output=True, text=True,
                         env={**os.environ, "LC_ALL": "C"}, check=False)
    return run.returncode, run.stderr


def wrong(program, compiler, flags):
    """What is wrong with the output for a program, or None."""
    head = EXPECT.search(program.read_text())
    if not head or head[1] != program.name:
        return f"its head has no line '// {program.name}   expect: <sentence>'"
    code, said = output_of(compiler, [*flags, *FLAGS], program)
    if "frontend command failed" in said:                                  # clang 14 crashes over its own header at times
        code, said = output_of(compiler, FLAGS, program)
    if head[2] == "compiles":
        return None if code == 0 else f"it must compile:\n{said[:3000]}"
    errors = ERROR.findall(said)
    if len(errors) != 1:
        return f"{len(errors)} errors instead of one:\n" + "\n".join(errors[:8])
    if head[2] not in errors[0]:
        return f"expected the sentence: {head[2]}\nthe error is: {errors[0]}"
    above = said[:ERROR.search(said).start()].splitlines()
    ours = [line for line in above if "include/chorale/" in line and not NO_STEP.match(line)]
    return None if len(ours) <= MOST else f"{len(ours)} lines above the error, at most {MOST}:\n" + "\n".join(ours)


def wrong_with_flag(flag, sentence, compiler):
    """What is wrong with the output of a compiler with a flag that the library refuses, or None."""
    file = pathlib.Path(os.environ["TEST_TMPDIR"]) / "flags.cpp"
    file.write_text("#include <chorale/chorale.hpp>\n\nint main() { auto const device = chorale::Cpu{}; }\n")
    code, said = output_of(compiler, [*FLAGS, flag], file)
    errors = ERROR.findall(said)
    if code == 0 or not errors or sentence not in errors[0]:
        return f"{flag}: expected the sentence: {sentence}\nthe first of {len(errors)} errors is: {errors[:1]}"
    return None if len(errors) <= 2 else f"{flag}: {len(errors)} errors"   # the second one ends the compiler


def main():
    programs = sorted(pathlib.Path("test/compile_fail/first_hour").glob(sys.argv[1] if len(sys.argv) > 1 else "*.cpp"))
    failed = 0
    for compiler in ("g++", "clang++"):
        if not shutil.which(compiler):
            print(f"SKIPPED: the first hour with {compiler}: it is not installed")
            continue
        flags = precompiled(compiler)
        jobs = [(program.stem, lambda program=program: wrong(program, compiler, flags)) for program in programs]
        jobs += [(flag, lambda flag=flag, sentence=sentence: wrong_with_flag(flag, sentence, compiler))
                 for flag, sentence in WRONG_FLAGS.items()]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = list(pool.map(lambda job: job[1](), jobs))
        for (name, _), complaint in zip(jobs, complaints):
            if complaint:
                print(f"{name} with {compiler}: {complaint}")
            print(f"{'FAILED' if complaint else 'PASSED'}: {name} with {compiler}")
            failed += complaint is not None
    if len(programs) < 20 and len(sys.argv) == 1:
        print("FAILED: first_hour has fewer than twenty programs")
        failed += 1
    return failed != 0


sys.exit(main())
