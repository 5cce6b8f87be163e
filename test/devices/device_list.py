# SPDX-License-Identifier: Apache-2.0
"""test/devices/list.hpp, read."""
import pathlib
import re

LIST = pathlib.Path("test/devices/list.hpp")
COLUMNS = ("CUDA, nn::Sequential", "CUDA, nn::Graph", "PJRT")
KINDS = ("LAYER", "LOSS", "METRIC", "RULE", "PRECISION")


class Row:
    """One row: kind, the heading above it, answers of COLUMNS, what it is used with ("" for a rule), its C++."""

    def __init__(self, kind, heading, arguments):
        self.kind, self.heading = kind, heading
        self.answers, rest = [], arguments
        for _ in COLUMNS:
            answer, rest = _cut(rest)
            self.answers.append(answer.strip())
        rest = rest.strip()
        self.with_, self.cpp = ("", rest) if kind == "RULE" else _cut(rest)
        self.cpp = self.cpp.strip()

    @property
    def names(self):
        """{(namespace, name)} of types of the library that the row has."""
        cpp = f"{self.with_} {self.cpp}".replace("loss::per_position(", "loss::PerPosition(")
        cpp = cpp.replace(").ignore_label(", ") loss::ignore_label(")
        cpp = re.sub(r"(?<![\w:])WithProducts<", "nn::WithProducts<", cpp)      # which steps.hpp gives a network
        return set(re.findall(r"\b(nn|loss|metric|optim)::(\w+)", cpp))


def _cut(text):
    """Cuts a text at its first comma outside of brackets."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "({<") - (c in ")}>")
        if c == "," and depth == 0:
            return text[:i], text[i + 1:]
    raise ValueError(text)


def rows():
    found, heading = [], ""
    for line in re.sub(r"\n +", " ", LIST.read_text()).splitlines():         # a row may go on on the next line
        if re.match(r"// (Layers|Losses|Metrics|Rules|Precisions)", line):
            heading = line[3:]
        if row := re.match(rf"({'|'.join(KINDS)})\((.*)\)$", line):
            found.append(Row(row[1], heading, row[2]))
    return found


def others(kind):
    """{(namespace, name)} of lines OPTION or PART."""
    return set(re.findall(rf"^{kind}\((\w+), (\w+)\)$", LIST.read_text(), re.MULTILINE))


def sentences():
    """{number: the sentence that a compiler or a program says}"""
    found = re.findall(r"^SENTENCE\((\d+),\s*(\".*?\")\)$", LIST.read_text(), re.MULTILINE | re.DOTALL)
    return {int(number): "".join(re.findall(r'"(.*?)"', text)) for number, text in found}


def numbers(answer):
    """(how, {sentences}) of an answer: ("same", {}), ("none", {}), ("no", {3, 4}) or ("throws", {3})."""
    found = re.fullmatch(r"(same|none)|(no)\((\d+)(?:, (\d+))?\)|(throws)\((\d+)\)", answer)
    if not found:
        raise ValueError(f"{LIST} has an answer {answer!r}, neither same, none, no(1), no(1, 2) nor throws(1)")
    return found[1] or found[2] or found[5], {int(n) for n in (found[3], found[4], found[6]) if n}
