#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every case beside this file with g++ and clang++, and compares the first error with what the case expects.

A case says so in a comment at its head: `// <file name>   expect: <sentence>`, or `expect: compiles`.
A refused case prints exactly one line with `error:`, and that line has the sentence. Reading the library takes a
second, so cases are compiled as one program, each in a namespace: those that compile, and those that are refused. A case
is compiled by itself when that program does not show for it what it should.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append("test/support")
from one_program import WHOLE_WAY, as_one_program, errors_with_places

FLAGS = ["-std=c++20", "-march=x86-64-v3", "-I", "include"]
EXPECT = re.compile(r"^//\s*(\S+)\s+expect:\s*(.+?)\s*$", re.MULTILINE)


def precompiled(compiler):
    """Compiles chorale.hpp once for all cases: the flags that let this compiler use it."""
    folder = pathlib.Path(os.environ["TEST_TMPDIR"]) / compiler
    (folder / "chorale").mkdir(parents=True)
    header, made = folder / "all.hpp", folder / "chorale/chorale.hpp.gch"      # g++ looks for this name
    header.write_text("#include <chorale/chorale.hpp>\n")
    if subprocess.run([compiler, *FLAGS, "-x", "c++-header", str(header), "-o", str(made)], check=False).returncode:
        sys.exit(f"FAILED: chorale.hpp with {compiler}")
    return ["-I", str(folder)] if compiler == "g++" else ["-include-pch", str(made)]


def expected_of(case):
    """The sentence, "compiles", or None when the head has neither."""
    head = EXPECT.search(case.read_text())
    return head[2] if head and head[1].split("/")[-1] == case.name else None


def run_compiler(compiler, flags, file):
    return subprocess.run([compiler, *flags, *FLAGS, "-fsyntax-only", str(file)], capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}, check=False)


def all_compile(cases, compiler):
    """Whether they do as one program."""
    file = pathlib.Path(os.environ["TEST_TMPDIR"]) / f"all_{compiler}.cpp"
    file.write_text("#include <chorale/chorale.hpp>\n" + as_one_program(cases))
    return run_compiler(compiler, [], file).returncode == 0


def shown(cases, compiler):
    """What a compiler says of each case when they are one program, in this order: {case: [errors]}; and whether it says
    anything that is about no case, or about several."""
    file = pathlib.Path(os.environ["TEST_TMPDIR"]) / f"refused_{compiler}.cpp"
    file.write_text("#include <chorale/chorale.hpp>\n" + as_one_program(cases))
    by_path = {str(case.absolute()): case for case in cases}
    place = re.compile("(" + "|".join(map(re.escape, by_path)) + "):")
    said = run_compiler(compiler, WHOLE_WAY[compiler], file).stderr
    errors, strays = {case: [] for case in cases}, False
    for message, places in errors_with_places(said, compiler, place):
        if len(places) == 1:
            errors[by_path[next(iter(places))]].append(message)
        else:
            strays = True
    return errors, strays


def refused_together(cases, compiler):
    """The cases of which one program shows exactly one error, with their sentence.

    An error in a template that two cases use the same way is shown for the first of them only. So the program is
    compiled in both orders, until each order shows one error for each case that is left, and no other: a second error
    that one case hides of another would show in the other order."""
    left = list(cases)
    while left:
        before, about_none = left, False
        for order in (1, -1):
            errors, strays = shown(before[::order], compiler)
            about_none |= strays
            left = [case for case in left if len(errors[case]) == 1 and expected_of(case) in errors[case][0]]
            if len(left) < len(errors):
                break
        if len(left) == len(before):
            return set() if about_none else set(left)
    return set()


def wrong(case, compiler, flags):
    """What is wrong with this case under this compiler, or None."""
    expected = expected_of(case)
    if expected is None:
        return f"its head has no line '// {case.name}   expect: <sentence>'"
    run = run_compiler(compiler, flags, case)
    if "frontend command failed" in run.stderr:                            # clang 14 crashes over its own header at times
        run = run_compiler(compiler, [], case)
    errors = [line for line in run.stderr.splitlines() if "error:" in line]
    if expected == "compiles":
        return None if run.returncode == 0 else f"it must compile:\n{run.stderr[:4000]}"
    if run.returncode == 0:
        return f"it compiles; expected the sentence: {expected}"
    if len(errors) != 1:
        return f"{len(errors)} errors instead of one:\n" + "\n".join(errors[:20])
    if expected not in errors[0]:
        return f"expected the sentence: {expected}\nthe error is: {errors[0]}"
    return None


def main():
    here = pathlib.Path("test/compile_fail")
    cases = sorted(here.glob("*.cpp"))
    jobs = []
    for compiler in ("g++", "clang++") if cases else ():
        if shutil.which(compiler):
            flags = precompiled(compiler)
            good = [case for case in cases if expected_of(case) == "compiles"]
            bad = [case for case in cases if expected_of(case) not in ("compiles", None)]
            fine = (set(good) if all_compile(good, compiler) else set()) | refused_together(bad, compiler)
            print(f"{compiler}: {len(cases) - len(fine)} of {len(cases)} cases compiled by themselves")
            jobs += [(case, compiler, flags, case in fine) for case in cases]
        else:
            print(f"SKIPPED: compile_fail with {compiler}: it is not installed")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: None if job[3] else wrong(*job[:3]), jobs))
    for (case, compiler, *_), complaint in zip(jobs, results):
        if complaint:
            print(f"{case} with {compiler}: {complaint}")
        print(f"{'FAILED' if complaint else 'PASSED'}: {case.stem} with {compiler}")
    if not jobs:
        print("NONE: there is no case yet")
    return 1 if any(results) else 0


sys.exit(main())
