#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks g++ and clang++ about every cell of the tables in docs/30-compose.md, and compares their answers with it.

A cell is a strategy, a reduce and a transport. `yes` must compile; a cell with numbers must be refused by one error for
each, with the sentence of that number on the page; clang++ stops at the first of those of one class, and the first
sentence is of another class than the rest. The first table is of MirroredStrategy.
Each strategy of the second is combined with each reduce and transport of the first, and refused for all reasons that the
two tables have.
"""
import itertools
import os
import pathlib
import re
import shutil
import sys

sys.path.append("test/support")
from compilers import run_compiler
from one_program import WHOLE_WAY, errors_with_places

PAGE = pathlib.Path("docs/30-compose.md").read_text()
INCLUDES = ["chorale/chorale.hpp", "chorale/parallel.hpp", "chorale/strategy/parameter_server.hpp",
            "chorale/transport/layered.hpp", "chorale/transport/shared_memory.hpp", "chorale/transport/tcp.hpp"]

# The C++ of what the page has in short.
CPP = {"`HierarchicalAllReduce`": "HierarchicalAllReduce<>",
       "`Layered<..>`": "Layered<LocalTransport, TcpTransport>",
       "one with messages only": "Messages",
       "one that does not reach host memory": "NotOfTheHost",
       "`OneDeviceStrategy`": "OneDeviceStrategy<>",
       "`MirroredStrategy`": "MirroredStrategy<>",
       "`CentralStorageStrategy`": "CentralStorageStrategy<>",
       "`MultiWorkerMirroredStrategy`": "MultiWorkerMirroredStrategy<>",
       "`LocalSgd<8, ..>`": "LocalSgd<8, MirroredStrategy<>>",
       "`Gossip<..>`": "Gossip<MirroredStrategy<>>"}

PRETENDED = """
struct Messages {
  struct endpoint {
    struct pending { bool done(); void wait(); };
    Rank rank() const;
    int  size() const;
    pending send(Rank, Tag, ConstBytes);
    pending recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }
  std::vector<endpoint> connect(Group const&) const;
};
struct NotOfTheHost : LocalTransport {
  static constexpr bool reaches(Memory memory) { return memory != Memory::host; }
};
// A reduce and a transport that do not fit are an error once in a program: each strategy has transports of its own.
template <class T, int strategy>
struct Of : T {};
"""


def cpp(name):
    return CPP.get(name, name.strip("`"))


def table(name):
    """{row: {column: cell}} of a table of the page."""
    text = re.search(rf"<!-- begin {name}:.*?-->\n(.*?)<!-- end {name} -->", PAGE, re.DOTALL)[1]
    head, _, *rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in text.strip().splitlines()]
    return {row[0]: dict(zip(head[1:], row[1:])) for row in rows}


def numbers(cell):
    """The sentences with which a cell is refused: none for `yes`."""
    if cell == "yes":
        return frozenset()
    found = re.fullmatch(r"no, (\d)(?: and (\d))?", cell)
    if not found:
        sys.exit(f"FAILED: docs/30-compose.md has a cell {cell!r}, neither 'yes' nor 'no, 1'")
    return frozenset(int(number) for number in found.groups() if number)


def sentences():
    """{number: the sentence that the page says the compiler prints}"""
    return {int(number): " ".join(text.split())
            for number, text in re.findall(r"\*\*(\d)\.\*\*.*?```text\n(.*?)```", PAGE, re.DOTALL)}


def cells():
    """{(strategy, reduce, transport): numbers}"""
    reduces, strategies = table("compose"), table("strategies")
    every = {}
    for reduce, row in reduces.items():
        for transport, cell in row.items():
            every["`MirroredStrategy`", reduce, transport] = numbers(cell)
    lossy = {"`Compressed<bf16>`": "`Compressed`, `TopK`", "`TopK<10>`": "`Compressed`, `TopK`", "`Reproducible<64>`": "`Reproducible`"}
    for (strategy, row), (reduce, by_transport) in itertools.product(strategies.items(), reduces.items()):
        for transport, cell in by_transport.items():
            column = "over `LocalTransport`" if transport == "`LocalTransport`" else transport
            if column in row:                                              # not of the transports that only pretend
                reason = numbers(row[lossy.get(reduce, "a reduce that adds")])
                every[strategy, reduce, transport] = numbers(cell) | reason | numbers(row[column])
    return every


def answers(compiler, every):
    """{cell: [errors]} of one program that has a line for each cell."""
    lines = [f"#include <{header}>" for header in INCLUDES] + ["using namespace chorale;", *PRETENDED.splitlines()]
    line_of = {}
    strategies = list(dict.fromkeys(cell[0] for cell in every))
    for cell in every:
        strategy, reduce, transport = map(cpp, cell)
        transport = f"Of<{transport}, {strategies.index(cell[0])}>"
        lines.append(f"static_assert(sizeof(Live<{strategy}, {reduce}, {transport}>) > 0);")
        line_of[str(len(lines))] = cell
    file = pathlib.Path(os.environ["TEST_TMPDIR"]) / f"cells_{compiler}.cpp"
    file.write_text("\n".join(lines) + "\n")
    run = run_compiler(compiler, file, *WHOLE_WAY[compiler])
    found = {cell: [] for cell in every}
    for message, places in errors_with_places(run.stderr, compiler, re.compile(rf"{re.escape(str(file))}:(\d+):")):
        if len(places) != 1 or next(iter(places)) not in line_of:
            sys.exit(f"FAILED: {compiler} says something that is about no cell: {message}\n{run.stderr[:8000]}")
        found[line_of[places.pop()]].append(message)
    return found


def main():
    every, said, failed = cells(), sentences(), False
    refused = sum(1 for expected in every.values() if expected)
    print(f"{len(every)} cells, {refused} of them refused; sentences {sorted(said)}")
    used = set().union(*every.values())
    if refused == 0 or refused == len(every) or not used <= set(said):
        sys.exit(f"FAILED: docs/30-compose.md: cells name the sentences {sorted(used)}, the page has {sorted(said)}")
    for compiler in ("g++", "clang++"):
        if not shutil.which(compiler):
            print(f"SKIPPED: what {compiler} says to every cell of docs/30-compose.md: it is not installed")
            continue
        found = answers(compiler, every)
        for strategy in dict.fromkeys(cell[0] for cell in every):
            wrong = []
            for cell, expected in every.items():
                if cell[0] != strategy:
                    continue
                errors = [[n for n in said if said[n] in " ".join(error.split())] for error in found[cell]]
                given = sorted(itertools.chain(*errors))
                # After the first sentence clang++ gives up on a class, and sentence 1 is of a class of its own.
                rest      = expected - {1}
                all_given = given == sorted(expected) if compiler == "g++" else \
                    given.count(1) == (1 in expected) and len(given) == (1 in expected) + min(1, len(rest)) and \
                    set(given) <= expected
                if not all_given or not all(len(e) == 1 for e in errors):
                    wrong.append(f"{' '.join(cell)}: the page says {sorted(expected)}, {compiler}: {found[cell]}")
            print("".join(f"{line}\n" for line in wrong[:20]), end="")
            count = sum(cell[0] == strategy for cell in every)
            print(f"{'FAILED' if wrong else 'PASSED'}: {compiler} on the {count} cells of {strategy}")
            failed |= bool(wrong)
    return failed


sys.exit(main())
