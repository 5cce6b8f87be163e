#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs in first_hour/, each with a mistake that the first hour meets, by g++ and by clang++.

A program trains: it calls fit, and evaluate or predict. It says at its head what it expects, see
test/support/compile_cases.py. Of a refused one a user sees one error, which is that sentence, and above it at most MOST
lines that say how the compiler came to that place in the library. Flags with which the library does not compile are told
in one line as well.

first_hour_test.py [PATTERN]   only the programs whose names match, such as 'own_*.cpp'
"""
import concurrent.futures
import os
import pathlib
import re
import sys

sys.path.append("test/support")
from compile_cases import cases_in
from compilers import WORK, installed, precompiled, run_compiler

MOST = 3
NO_STEP = re.compile(r"In file included from |\s+from |.*in .constexpr. expansion of ")     # lines of no template
WRONG_FLAGS = {"-std=c++17": "Compile with -std=c++20", "-fno-exceptions": "Compile without -fno-exceptions",
               "-fno-rtti": "Compile without -fno-rtti"}


def wrong(case, compiler, header):
    """What is wrong with the output for a program, or None."""
    run = run_compiler(compiler, case.file, header=header)
    complaint = case.wrong(run)
    if complaint or case.compiles:
        return complaint
    above = run.stderr[:run.stderr.index("error:")].splitlines()[:-1]
    ours = [line for line in above if "include/chorale/" in line and not NO_STEP.match(line)]
    return None if len(ours) <= MOST else f"{len(ours)} lines above the error, at most {MOST}:\n" + "\n".join(ours)


def wrong_with_flag(flag, compiler):
    """What is wrong with the output of a compiler with a flag that the library refuses, or None."""
    file = WORK / f"{compiler}{flag}.cpp"
    file.write_text("#include <chorale/chorale.hpp>\n\nint main() { auto const device = chorale::Cpu{}; }\n")
    run = run_compiler(compiler, file, flag)
    errors = [line for line in run.stderr.splitlines() if "error:" in line]
    sentence = WRONG_FLAGS[flag]
    if run.returncode != 0 and len(errors) == 1 and "chorale: " in errors[0] and sentence in errors[0]:
        return None
    return f"{flag}: expected one error, with the sentence: {sentence}\nthe first of {len(errors)} errors is: {errors[:1]}"


def main():
    programs = sorted(pathlib.Path("test/compile_fail/first_hour").glob(sys.argv[1] if len(sys.argv) > 1 else "*.cpp"))
    failed = 0
    cases = []
    for program in programs:
        found = cases_in(program)
        cases += found
        if len(found) != 1:
            print(f"FAILED: {program} has {len(found)} lines '// {program.name}   expect: <sentence>'")
            failed += 1
    for compiler in installed("the first hour", one_is_enough=True):
        header = precompiled(compiler)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = {case.file.stem: pool.submit(wrong, case, compiler, header) for case in cases}
            jobs |= {flag: pool.submit(wrong_with_flag, flag, compiler) for flag in WRONG_FLAGS}
        for name, job in jobs.items():
            if job.result():
                print(f"{name} with {compiler}: {job.result()}")
            print(f"{'FAILED' if job.result() else 'PASSED'}: {name} with {compiler}")
            failed += job.result() is not None
    if len(programs) < 20 and len(sys.argv) == 1:
        print("FAILED: first_hour has fewer than twenty programs")
        failed += 1
    return failed != 0


sys.exit(main())
