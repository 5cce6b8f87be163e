#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks clang++ about answers of test/devices/list.hpp that are not `same`: without CHORALE_SLOW about one row of each
sentence; with it clang++ and g++ about all.

`no(n)` must be sentence n and nothing else; with CHORALE_SLOW `none` must be one sentence on Cpu. What is `same`
compiles in the programs beside this one; `--all` asks about that, too, and prints each answer, which is how a row is
written.
"""
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path += ["test/support", "test/devices"]
from compilers import run_compiler
from device_list import COLUMNS, numbers, rows, sentences
from one_program import WHOLE_WAY, errors_with_places

WORK = pathlib.Path(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp())
ONE_INPUT = ("vector", "sequence", "image")                              # of numbers, as a Sequential has it
HEADS = dict(zip(COLUMNS, ("chorale/tensor/cuda/all.hpp", "chorale/tensor/cuda/all.hpp", "chorale/pjrt/tpu.hpp")))


def case(row, column):
    """The type of the case of a row: a column of Sequential has other cases than the others."""
    in_sequential = column == COLUMNS[0]
    sequential = "Sequential" if in_sequential else ""
    net = "TwoLayers" if column == COLUMNS[1] else "TwoInSequence"
    if row.kind == "LAYER":
        return f"{sequential}LayerCase<{row.with_}, {row.cpp}>"
    if row.kind == "LOSS":
        loss = f"decltype({row.cpp})"
        return f"SequentialLossCase<{row.with_}, {loss}>" if in_sequential else f"LossCase<Ended<{row.with_}, {loss}>>"
    if row.kind == "METRIC":
        return f"{sequential}MetricCase<{row.with_}, decltype({row.cpp})>"
    if row.kind == "RULE":
        return f"RuleCase<{net}, decltype({row.cpp})>"
    return f"PrecisionCase<{row.cpp}, {net}, decltype({row.with_})>"


def type_of(row):
    """The C++ of a row without values of options."""
    return re.sub(r"\{(\.| *\}).*", "", row.cpp)


def questions(everything):
    """{column: [(row, device to ask about)]}. A program for each, for compilers say a sentence of one class once."""
    asked, slow, seen = {column: [] for column in COLUMNS}, os.environ.get("CHORALE_SLOW"), set()
    for row in rows():
        for column, answer in zip(COLUMNS, row.answers):
            how, _ = numbers(answer)
            if how == "none":
                if slow and (row.with_ in ONE_INPUT or row.kind != "LAYER"):
                    asked[column].append((row, "Cpu"))
            elif everything or how == "no" and (slow or column != COLUMNS[0] and (column, answer) not in seen):
                seen.add((column, answer))
                asked[column].append((row, "Pjrt" if column == "PJRT" else "Cuda"))
    return asked


def answers(compiler, column, asked):
    """[[errors]] of one program that has a line for each question."""
    lines = ['#include "test/devices/steps.hpp"', f"#include <{HEADS[column]}>"]
    lines += ["using namespace chorale;", "using namespace chorale::test::devices;"]
    line_of, first = {}, {}
    for i, (row, on) in enumerate(asked):
        first.setdefault((on, row.with_, type_of(row)), i)                 # of one type a compiler speaks once
        if first[on, row.with_, type_of(row)] == i:
            lines.append(f"auto const cell_{i} = &ask<{on}, {case(row, column)}>;")
            line_of[str(len(lines))] = i
    name = f"{COLUMNS.index(column)}_{compiler}"
    file = WORK / f"cells_{name}.cpp"
    file.write_text("\n".join(lines) + "\n")
    run = run_compiler(compiler, file, *WHOLE_WAY[compiler])
    (WORK / f"said_{name}.txt").write_text(run.stderr)
    found = [[] for _ in asked]
    for message, places in errors_with_places(run.stderr, compiler, re.compile(rf"{re.escape(str(file))}:(\d+):")):
        if len(places) != 1 or next(iter(places)) not in line_of:
            sys.exit(f"FAILED: {compiler} says something that is about no cell: {message}\n{run.stderr[:8000]}")
        found[line_of[places.pop()]].append(message)
    return [found[first[on, row.with_, type_of(row)]] for row, on in asked]


def sentence_in(message):
    """What a static_assert says."""
    found = re.search(r"chorale: .*?(?=\"?$)", message)
    return found[0] if found else None


def main():
    everything, said, failed = "--all" in sys.argv, sentences(), False
    if not os.environ.get("CHORALE_SLOW") and not everything:
        print("SKIPPED: what compilers say to all refused rows of test/devices/list.hpp: it is slow. Try: "
              "tools/test --slow")
    for compiler in ("clang++", "g++"):
        if not shutil.which(compiler):
            print(f"SKIPPED: what {compiler} says to test/devices/list.hpp: it is not installed")
            continue
        if compiler == "g++" and not os.environ.get("CHORALE_SLOW"):
            print("SKIPPED: what g++ says to test/devices/list.hpp: it is slow. Try: tools/test --slow")
            continue
        for column, asked in questions(everything).items():
            if not asked:
                continue
            if column != "PJRT" and not any(pathlib.Path(folder, "cuda_runtime_api.h").exists() for folder in
                                            ("/usr/include", "/usr/local/include", "/usr/local/cuda/include")):
                print("SKIPPED: what compilers say about CUDA: there is no cuda_runtime_api.h")
                continue
            found, wrong = answers(compiler, column, asked), []
            for (row, on), errors in zip(asked, found):
                how, wanted = numbers(row.answers[COLUMNS.index(column)])
                if everything:
                    told = [sentence_in(error) or f"RAW {error}" for error in errors]
                    print(f"{column} | {row.kind} {row.with_} {row.cpp} | {told or 'compiles'}")
                given = {sentence_in(error) for error in errors}
                if how == "none":
                    right = len(given) == 1 and None not in given
                else:                                                      # none where the answer is `same`
                    listed = {said[n] for n in wanted}
                    right = given == listed or compiler == "g++" and given and given < listed   # it may stop at the first
                if not right:
                    wrong.append(f"{column}, {row.cpp}: the list says {row.answers[COLUMNS.index(column)]}, {compiler} "
                                 f"on {on}: {errors or 'it compiles'}")
            print("".join(f"{line}\n" for line in wrong[:40]), end="")
            print(f"{'FAILED' if wrong else 'PASSED'}: {compiler} on {len(asked)} answers of {column}")
            failed |= bool(wrong)
    return failed


sys.exit(main())
