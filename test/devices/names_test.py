#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares test/devices/list.hpp with the headers, each way, and with the tables of docs/45-cuda.md and docs/46-tpu.md.

Each public type of the namespaces nn, loss, metric and optim is in a row of the list, or is an OPTION, which some row
has, or a PART. With --write the tables of the pages are written.
"""
import collections
import pathlib
import re
import sys

sys.path.append("test/devices")
from device_list import COLUMNS, numbers, others, rows, sentences

ROOMS = ("derivatives", "layers", "losses", "metrics", "networks", "parallel", "trace")         # what programs name

PAGES = {"docs/45-cuda.md": COLUMNS[:2], "docs/46-tpu.md": COLUMNS[2:]}


def names_of_headers():
    """{(namespace, name)} of types that the headers declare at namespace scope."""
    found = set()
    for folder in ("optim", "nn", *(f"nn/{room}" for room in ROOMS)):
        for file in sorted(pathlib.Path("include/chorale", folder).glob("*.hpp")):
            inside = []
            for line in file.read_text().splitlines():
                if begun := re.match(r"namespace ([\w:]+) \{", line):
                    inside.append(begun[1])
                elif line.startswith("}  // namespace"):
                    inside.pop()
                elif defined := re.match(r"(?:template <.*> )?(?:struct|class|using|enum class) (\w+)(?![\w:<])", line):
                    found.add(("::".join(inside).removeprefix("chorale::"), defined[1]))
    return {(inside, name) for inside, name in found if inside in ("nn", "loss", "metric", "optim")}


def compare_names():
    """What is in the headers alone, and what is in the list alone, in lines."""
    headers = names_of_headers()
    options, parts = others("OPTION"), others("PART")
    of_rows = set().union(*(row.names for row in rows()))
    told = [f"{space}::{name} is in the headers and not in test/devices/list.hpp. Try: a row LAYER, LOSS, METRIC, RULE "
            "or PRECISION; OPTION if a row has it; PART if it is none of these"
            for space, name in sorted(headers - of_rows - options - parts)]
    told += [f"{space}::{name} is in test/devices/list.hpp and not in the headers"
             for space, name in sorted((of_rows | options | parts) - headers)]
    told += [f"OPTION({space}, {name}) is in no row of test/devices/list.hpp"
             for space, name in sorted(options - of_rows)]
    told += [f"{space}::{name} is a PART, and a row of test/devices/list.hpp has it" for space, name in
             sorted(parts & of_rows)]
    return told


def short(cpp):
    """C++ of a row as a table has it."""
    return re.sub(r"\bnn::", "", re.sub(r"\s+", " ", cpp)).replace("|", r"\|")


def named(row):
    """A row as a table has it."""
    inputs = {"ragged_ids": " of rows of different lengths", "bytes": " of bytes", "derivatives": " of `derivatives`"}
    return f"`{short(row.cpp)}`{inputs.get(row.with_, '')}"


def says(answer):
    how, wanted = numbers(answer)
    named = " and ".join(str(n) for n in sorted(wanted))
    return {"same": "same", "none": "-", "throws": f"no, {named} as it runs"}.get(how, f"no, {named}")


def block(columns):
    """The tables of a page: a line for each heading and answer, then the sentences."""
    lines, counts, used = [], collections.Counter(), set()
    lines += [f"| what | {' | '.join(columns)} | names |", "| --- |" + " --- |" * (len(columns) + 1)]
    together = {}
    for row in rows():
        answers = row.answers[:2] if len(columns) == 2 else row.answers[2:]
        together.setdefault((row.heading, tuple(answers)), []).append(row)
        for answer in answers:
            how, wanted = numbers(answer)
            counts[how] += 1
            used |= wanted
    for (heading, answers), ones in together.items():
        names = ", ".join(dict.fromkeys(map(named, ones)))
        lines.append(f"| {heading} | {' | '.join(map(says, answers))} | {names} |")
    refused = counts["no"] + counts["throws"]
    lines += ["", f"{counts['same']} answers are `same`, {refused} a sentence" +
              (f", {counts['none']} no layer of a Sequential." if counts["none"] else "."), ""]
    for number, sentence in sentences().items():
        if number in used:
            lines += [f"**{number}.**", "```text", *wrapped(sentence), "```"]
    return "\n".join(lines) + "\n"


def wrapped(sentence):
    """A sentence in lines."""
    lines = [""]
    for word in sentence.split(" "):
        if len(lines[-1]) + len(word) > 116:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def main():
    told = compare_names()
    print("".join(f"{line}\n" for line in told), end="")
    print(f"{'FAILED' if told else 'PASSED'}: the names of test/devices/list.hpp and of the headers")
    failed = bool(told)
    for page, columns in PAGES.items():
        begin, end = "<!-- begin devices: written by test/devices/names_test.py -->\n", "<!-- end devices -->"
        text = pathlib.Path(page).read_text()
        if begin not in text or end not in text:
            sys.exit(f"FAILED: {page} needs the lines\n{begin}{end}")
        before, rest = text.split(begin)
        is_there, after = rest.split(end)
        wanted = block(columns)
        if "--write" in sys.argv:
            pathlib.Path(page).write_text(before + begin + wanted + end + after)
        elif is_there != wanted:
            print(f"the block \"devices\" of {page} should be\n\n{wanted}\nTry: test/devices/names_test.py --write")
            failed = True
        else:
            print(f"PASSED: the tables of {page}")
    answers = [numbers(answer)[0] for row in rows() for answer in row.answers]
    print(f"{len(rows())} rows, {len(answers)} answers: {answers.count('same')} same, "
          f"{answers.count('no') + answers.count('throws')} a sentence, {answers.count('none')} none")
    return failed


sys.exit(main())
