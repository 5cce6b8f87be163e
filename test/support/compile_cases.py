# SPDX-License-Identifier: Apache-2.0
"""Programs of test/compile_fail, each with the sentence that the compiler must give for it.

A file has one program, or several in sections. A section begins with a line `// expect: <sentence>`, or
`// expect: compiles`, and ends where the next one begins; the line may name its file, `// no_loss.cpp   expect: ..`.
What stands before the first section belongs to each program of the file. `// expect (without <mpi.h>): ...` is about
compilers that do not find this header, and `with` about those that do. A program that defines macros is always compiled
by itself, from text.
"""
import pathlib
import re

EXPECT = re.compile(r"^//[ ]*(?:(\S+\.cpp) +)?expect(?: \((with|without) <([^>]+)>\))?:\s*(.+?)\s*$")


class Case:
    """One program: lines [0, head) and [begin, end) of a file."""

    def __init__(self, file, lines, head, begin, end):
        self.file, self.lines, self.head, self.begin, self.end = file, lines, head, begin, end
        _, self.condition, self.header, self.expected = EXPECT.match(lines[begin]).groups()
        self.includes = sorted({line for line in self.text().splitlines() if line.startswith("#include")})
        self.only_alone = any(re.match(r"#\s*(define|undef)", line) for line in self.text().splitlines())
        self.library_headers = [line for line in self.includes if not re.match(r"#include <[a-z_0-9]+>", line)]
        self.includes_all = "#include <chorale/chorale.hpp>" in self.includes
        self.namespace_of_file = "pairs_of_" + re.sub(r"\W", "_", str(file.with_suffix("")))
        self.namespace = f"{self.namespace_of_file}_at_{begin + 1}"

    @property
    def name(self):
        """Its file, and the line where it begins if there are several."""
        return str(self.file) + (f":{self.begin + 1}" if self.head else "")

    @property
    def title(self):
        """As `name`, for reports of many."""
        return self.name.removeprefix("test/compile_fail/").replace(".cpp", "")

    def part(self, folder):
        """Where as_one_program() writes its section."""
        return (folder / f"{self.namespace}.cpp").absolute()

    @property
    def compiles(self):
        return self.expected == "compiles"

    def wrong(self, run):
        """What is wrong with what a compiler has made of the program by itself, a CompletedProcess, or None."""
        if self.compiles:
            return None if run.returncode == 0 else f"it must compile:\n{run.stderr[:4000]}"
        if run.returncode == 0:
            return f"it compiles; expected the sentence: {self.expected}"
        errors = [line for line in run.stderr.splitlines() if "error:" in line]
        if len(errors) != 1:
            return f"{len(errors)} errors instead of one:\n" + "\n".join(errors[:20])
        if self.expected not in errors[0]:
            return f"expected the sentence: {self.expected}\nthe error is: {errors[0]}"
        return None

    def text(self):
        """The program. Its lines have the numbers that they have in the file."""
        return "\n".join(self.lines[:self.head] + [""] * (self.begin - self.head) + self.section()) + "\n"

    def section(self):
        return self.lines[self.begin:self.end]


def cases_in(file):
    """The programs of a file; none where it says of none what to expect."""
    lines  = file.read_text().splitlines()
    begins = [i for i, line in enumerate(lines) if (found := EXPECT.match(line)) and found[1] in (None, file.name)]
    head   = begins[0] if begins else 0
    return [Case(file, lines, head, begin, end) for begin, end in zip(begins, begins[1:] + [len(lines)])]


def all_cases(folder=pathlib.Path("test/compile_fail")):
    """The programs of all files in a folder and below."""
    return [case for file in sorted(folder.rglob("*.cpp")) for case in cases_in(file)]


def files_without_cases(folder=pathlib.Path("test/compile_fail")):
    return [file for file in sorted(folder.rglob("*.cpp")) if not cases_in(file)]
