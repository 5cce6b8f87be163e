#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every program beside this file and below with g++ and clang++, and compares the first error with what it
expects: see test/support/compile_cases.py.

A refused program prints exactly one line with `error:`, and that line has the sentence. Reading the library takes a
second, so programs are compiled together, each in a namespace: those that compile, of which all in one program name the
same headers, and those that are refused. A program is compiled by itself when that does not show for it what it should.

compile_fail_test.py FILE...   only these
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

sys.path.append("test/support")
from compile_cases import all_cases, cases_in, files_without_cases
from compilers import FLAGS, WORK, installed, precompiled, run_compiler
from one_program import WHOLE_WAY, as_one_program, errors_with_places

def finds(compiler, header):
    """Whether the compiler finds a header."""
    return subprocess.run([compiler, *FLAGS, "-x", "c++", "-fsyntax-only", "-"], capture_output=True, text=True,
                          input=f"#if !__has_include(<{header}>)\n#error none\n#endif\n", check=False).returncode == 0


def all_compile(cases, compiler, header):
    """Whether they do as one program."""
    file = WORK / f"{compiler}_from_{cases[0].namespace}.cpp"
    file.write_text(as_one_program(cases, WORK / f"parts_{compiler}"))
    return run_compiler(compiler, file, header=header if cases[0].includes_all else []).returncode == 0


def shown(cases, compiler, header, number):
    """What a compiler says of each program when they are one, in this order: {case: [errors]}; and whether it says
    anything that is about none of them, or about several."""
    file = WORK / f"refused_{compiler}_{number}.cpp"
    folder = WORK / f"parts_{compiler}_refused"
    file.write_text(as_one_program(cases, folder))
    by_path = {str(case.part(folder)): case for case in cases}
    place = re.compile("(" + "|".join(map(re.escape, by_path)) + "):")
    said = run_compiler(compiler, file, *WHOLE_WAY[compiler], header=header).stderr
    errors, strays = {case: [] for case in cases}, False
    for message, places in errors_with_places(said, compiler, place):
        if len(places) == 1:
            errors[by_path[next(iter(places))]].append(message)
        else:
            strays = True
    return errors, strays


def refused_together(cases, compiler, header):
    """The programs of which one program shows exactly one error, with their sentence.

    An error in a template that two programs use the same way is shown for the first of them only. So they are compiled
    in both orders, until each order shows one error for each program that is left, and no other: a second error that one
    program hides of another would show in the other order."""
    left, number = list(cases), 0
    while left:
        before, about_none = left, False
        for order in (1, -1):
            number += 1
            errors, strays = shown(before[::order], compiler, header, number)
            about_none |= strays
            left = [case for case in left if len(errors[case]) == 1 and case.expected in errors[case][0]]
            if len(left) < len(errors):
                break
        if len(left) == len(before):
            return set() if about_none else set(left)
    return set()


def wrong(case, compiler, header):
    """What is wrong with this program under this compiler, by itself, or None."""
    file = case.file
    if case.head:
        file = WORK / f"alone_{compiler}" / f"{case.namespace}.cpp"
        file.parent.mkdir(exist_ok=True)
        file.write_text(case.text())
    return case.wrong(run_compiler(compiler, file, header=header if case.includes_all and not case.only_alone else []))


def seen_together(cases, compiler, header, pool):
    """The programs that show what they should where they are compiled together."""
    together = [case for case in cases if not case.only_alone]
    groups   = {}
    for case in together:
        if case.compiles:
            groups.setdefault(tuple(case.library_headers), []).append(case)
    refused  = pool.submit(refused_together, [case for case in together if not case.compiles], compiler, header)
    compiled = {pool.submit(all_compile, group, compiler, header): group
                for group in sorted(groups.values(), key=len, reverse=True)}
    return lambda: refused.result().union(*(group for task, group in compiled.items() if task.result()))


def main():
    chosen = sys.argv[1:]
    cases  = ([case for file in chosen for case in cases_in(pathlib.Path(file))] or       # first_hour_test has the others
              [case for case in all_cases() if case.file.parent.name != "first_hour"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = {compiler: pool.submit(precompiled, compiler) for compiler in installed("compile_fail", one_is_enough=True)}
        seen, jobs = {}, []
        for compiler in made:
            headers = {case.header for case in cases if case.header}
            found   = {header for header in headers if finds(compiler, header)}
            here    = [case for case in cases if not case.header or (case.condition == "with") == (case.header in found)]
            jobs   += [(case, compiler) for case in here]
            for case in cases:
                if case not in here:
                    print(f"SKIPPED: {case.name} with {compiler}: it is about compilers {case.condition} <{case.header}>")
            # clang 14 crashes over a precompiled header in programs as large as these
            seen[compiler] = seen_together(here, compiler, made[compiler].result() if compiler == "g++" else [], pool)
        fine  = {(case, compiler) for compiler in seen for case in seen[compiler]()}
        alone = [job for job in jobs if job not in fine]
        print(f"{len(alone)} of {len(jobs)} programs compiled by themselves")
        complaints = dict(zip(alone, pool.map(lambda job: wrong(*job, made[job[1]].result()), alone)))
    for case, compiler in jobs:
        complaint = complaints.get((case, compiler))
        if complaint:
            print(f"{case.name} with {compiler}: {complaint}")
        print(f"{'FAILED' if complaint else 'PASSED'}: {case.title} with {compiler}")
    unread = [] if chosen else files_without_cases()
    for file in unread:
        print(f"FAILED: {file} has no line '// expect: <sentence>'")
    if not jobs:
        print("NONE: there is no program yet")
    return 1 if unread or any(complaints.values()) else 0


sys.exit(main())
