#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds every cell of the table of features, test/compose/feature_table.hpp, against the library.

A cell is a feature and a strategy. Those that are equal, "=" and "~", and those refused by an exception, such as "3t",
are compiled, a strategy at a time, and tried by features_test.cpp, all in one program. Those with a number must be refused by one error of the compiler, which has the
sentence of that number: the cells of a strategy are asked about together, and again alone where that leaves a doubt.
It takes many minutes, so it runs with CHORALE_SLOW alone: tools/test --slow.
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append("test/support")
from one_program import WHOLE_WAY, errors_with_places

TABLE = pathlib.Path("test/compose/feature_table.hpp").read_text()
WORK = pathlib.Path(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp())
COMPILER = os.environ.get("CXX") or ("clang++" if shutil.which("clang++") else "g++")
KIND = "clang++" if "clang" in COMPILER else "g++"
FLAGS = ["-std=c++20", "-O0", "-march=x86-64-v3", "-ffp-contract=off", "-fno-math-errno", "-Iinclude", "-I."]
LIBRARIES = ["-ldnnl", "-lgomp", "-lz", "-lcrypto", "-lpthread", "-ldl"]
REFERENCES = ["one_device", "one_by_ring"]
ON_PJRT = {"tpu", "tpu_shards", "hosts_of_tpus"}
JOBS = int(os.environ.get("CHORALE_JOBS", max(1, (os.cpu_count() or 1) // 2)))


def literals(text):
    """The strings of a piece of C++, adjacent ones joined."""
    joined = re.sub(r'"\s*\n\s*"', "", text)
    return [found.replace('\\"', '"') for found in re.findall(r'"((?:[^"\\]|\\.)*)"', joined)]


def table():
    """{(feature, column): cell}, [sentences]"""
    columns = re.findall(r'Column\{"(\w+)"', TABLE)
    macros = dict(re.findall(r'#define (\w+) "([^"]*)"', TABLE))
    cells = {}
    for feature, text in re.findall(r'Row\{"(\w+)", "(?:[^"\\]|\\.)*",\s*(.*?)\},\n', TABLE, re.DOTALL):
        marks = (macros.get(text) or literals(text)[0]).split()
        if len(marks) != len(columns):
            sys.exit(f"FAILED: the row {feature} has {len(marks)} cells, and there are {len(columns)} strategies")
        cells.update(((feature, column), mark) for column, mark in zip(columns, marks))
    sentences = literals(re.search(r"sentences = std::array.*?\{(.*?)\n?\};", TABLE, re.DOTALL)[1])
    return cells, sentences


def features():
    """The rows that features.hpp has."""
    text = pathlib.Path("test/compose/features.hpp").read_text()
    blocks = re.split(r"\n(?=struct |template )", text)
    return [found[1] for block in blocks
            if "static Learned learn(" in block and (found := re.match(r"struct (\w+) ", block))]


def flags_of(column):
    return [*FLAGS, "-DFEATURES_ON_PJRT"] if column in ON_PJRT else FLAGS


def compiled(column, of):
    """The object of a strategy's cells, or what the compiler says."""
    unit = WORK / f"cells_{column}.cpp"
    unit.write_text('#include "test/compose/feature_cells.hpp"\n' +
                    "".join(f"CELL({feature}, {column})\n" for feature in of))
    run = subprocess.run([COMPILER, *flags_of(column), "-w", "-c", str(unit), "-o", str(unit.with_suffix(".o"))],
                         capture_output=True, text=True, check=False)
    return unit.with_suffix(".o"), run.stderr if run.returncode else ""


def errors(column, of):
    """{feature: [errors]} of one program that has a line for each cell."""
    lines = ['#include "test/compose/feature_cells.hpp"']
    line_of = {}
    for feature in of:
        lines.append(f"features::Learned use_{feature}(features::Data const& data) "
                     f"{{ return features::{feature}::learn<columns::{column}>(data); }}")
        line_of[str(len(lines))] = feature
    file = WORK / f"refused_{column}_{of[0]}_{len(of)}.cpp"
    file.write_text("\n".join(lines) + "\n")
    run = subprocess.run([COMPILER, *WHOLE_WAY[KIND], *flags_of(column), "-fsyntax-only", str(file)],
                         capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    found = {feature: [] for feature in of}
    for message, places in errors_with_places(run.stderr, KIND, re.compile(rf"{re.escape(str(file))}:(\d+):")):
        for place in places & set(line_of):
            found[line_of[place]].append(message)
        if not places & set(line_of):
            sys.exit(f"FAILED: {COMPILER} says something that is about no cell: {message}\n{run.stderr[:8000]}")
    return found


def refused(column, expected, sentences):
    """What is wrong with what the compiler says to a strategy's refused cells {feature: number}."""
    def wrong(feature, said):
        sentence = sentences[expected[feature] - 1]
        texts = {text[text.find("chorale: "):].rstrip('"') for text in said}   # layers have an error each, of one text
        if len(texts) == 1 and texts.pop().startswith(sentence):
            return None
        return f"{feature} under {column}: one error with the sentence {expected[feature]}, {sentence!r}, got {said}"

    found = errors(column, list(expected))
    alone = [feature for feature in expected if wrong(feature, found[feature])]
    again = {feature: errors(column, [feature])[feature] for feature in alone}
    return [said for feature in alone if (said := wrong(feature, again[feature]))]


def main():
    cells, sentences = table()
    names = list(dict.fromkeys(feature for feature, _ in cells))
    equal = {cell for cell, mark in cells.items() if mark in "=~" or mark.endswith("t")}
    numbers = {cell: int(mark) for cell, mark in cells.items() if cell not in equal}
    thrown = [cells[cell] for cell in equal if cells[cell] not in "=~"]
    print(f"{len(cells)} cells: {len(equal) - len(thrown)} equal to one device, {len(numbers)} refused by the compiler, "
          f"{len(thrown)} by an exception, in {len(sentences)} sentences")
    named = set(numbers.values()) | {int(mark.rstrip("t")) for mark in thrown}
    if named != set(range(1, len(sentences) + 1)):
        sys.exit(f"FAILED: cells name the sentences {sorted(named)}, of {len(sentences)}")
    if unknown := set(features()) ^ set(names):
        sys.exit(f"FAILED: features.hpp and the table differ in the rows {sorted(unknown)}")
    if not os.environ.get("CHORALE_SLOW"):
        print("SKIPPED: every cell of the table of features: it is slow. Try: tools/test --slow")
        return 0
    only = sys.argv[1:] or list(dict.fromkeys(column for _, column in cells))
    failed = False
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        of_column = {column: [f for f in names if (f, column) in equal] for column in only}
        units = {column: pool.submit(compiled, column, of)
                 for column, of in {**of_column, **dict.fromkeys(REFERENCES, names)}.items()}
        by_column = collections.defaultdict(dict)
        for (feature, column), number in numbers.items():
            if column in only:
                by_column[column][feature] = number
        asked = {column: pool.submit(refused, column, of, sentences) for column, of in by_column.items()}
        objects = [WORK / "features_test.o", WORK / "catch_main.o"]
        for source, made in zip(("test/compose/features_test.cpp", "test/support/catch_main.cpp"), objects):
            subprocess.run([COMPILER, *FLAGS, "-DFEATURES_ELSEWHERE", "-c", source, "-o", str(made)], check=True)
        for column, unit in units.items():
            made, said = unit.result()
            if said:
                print(f"FAILED: the cells of {column} do not compile: {said[:4000]}")
                failed = True
            else:
                objects.append(made)
        for column, answer in asked.items():
            wrong = answer.result()
            print("".join(f"{line}\n" for line in wrong), end="")
            print(f"{'FAILED' if wrong else 'PASSED'}: {COMPILER}, {len(by_column[column])} refused cells of {column}")
            failed |= bool(wrong)
    program = WORK / "features"
    subprocess.run([COMPILER, *map(str, objects), "-o", str(program), *LIBRARIES], check=True)
    run = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    print(run.stdout)
    print(f"{'FAILED' if run.returncode else 'PASSED'}: the cells that are equal")
    return failed or run.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
