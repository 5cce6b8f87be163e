#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include of every header against the table of layers: a folder includes only what is below it.

A folder within a folder includes its parent and the neighbours that the second table names:

    transport/  tcp/  shared_memory/  mpi/  simulated/       strategy/  coordinator/     data/  text/
                 │         │           │        │                            │                    │
                 │         │           │        │                            │                formats/
                 │         │           │        │                            │                    │
                 └─────────┴───────────┴────────┤                   parameter_server/          stages/
                         local/  ─────▶  common/                         │                    │
                                                │                        runtime/              threads/
                                              wire/
The rooms of nn/ have levels: a room includes lower ones only, and docs/20-layers.md draws them.
"""
import functools
import pathlib
import re
import sys

BASE = {"core", "observe", "device"}
COMPUTED = BASE | {"tensor"}        # the two halves never include each other
TRAVELS = BASE | {"transport"}
BELOW_STRATEGY = COMPUTED | TRAVELS | {"optim", "data", "placement", "checkpoint", "reduce", "cluster", "model", "nn"}

MAY_INCLUDE = {
    "core": set(),
    "observe": {"core"},
    "device": {"core", "observe"},
    "tensor": BASE, "transport": BASE,
    "optim": COMPUTED, "data": COMPUTED, "placement": COMPUTED, "checkpoint": COMPUTED,
    "reduce": TRAVELS, "cluster": TRAVELS,
    "model": COMPUTED | {"optim", "data", "placement"},
    "nn": COMPUTED | {"optim", "data", "placement", "model"},
    "libtorch": COMPUTED | {"optim", "data", "placement", "model"},
    "strategy": BELOW_STRATEGY,
    "trainer": BELOW_STRATEGY | {"strategy"},
    "advice": BELOW_STRATEGY | {"strategy"},
    "pjrt": BELOW_STRATEGY | {"strategy"},
    "c": BELOW_STRATEGY | {"strategy", "trainer"},
}

# Folder within a folder: its neighbours that it may include. It may always include its parent.
NEIGHBOURS = {
    "transport/wire": set(),
    "transport/common": {"wire"},
    "transport/local": {"common"},
    "transport/shared_memory": {"common", "wire"},
    "transport/tcp": {"common", "wire"},
    "transport/mpi": {"common", "wire"},
    "transport/nccl": set(),
    "transport/simulated": {"common"},
    "reduce/collectives": set(),
    "cluster/resolvers": set(),
    "tensor/cpu": set(),
    "tensor/cuda": set(),
    "data/threads": set(),
    "data/stages": {"threads"},
    "data/formats": {"stages", "threads"},
    "data/text": {"formats", "stages", "threads"},
    "nn/trace": set(),
    "nn/losses": set(),
    "nn/metrics": set(),
    "nn/layers": {"trace"},
    "nn/networks": {"layers", "trace"},
    "nn/parallel/distribution": {"layers", "trace"},
    "nn/engine": {"losses", "metrics", "networks", "trace"},
    "nn/parallel": {"layers", "losses", "parallel/distribution", "trace"},
    "nn/derivatives": {"engine", "layers", "networks", "trace"},
    "nn/lowering": {"engine", "layers", "losses", "networks", "trace"},
    "nn/pipeline": {"engine", "networks", "trace"},
    "pjrt/device": set(),
    "strategy/runtime": set(),
    "strategy/mesh": set(),
    "strategy/pipeline": {"mesh"},
    "strategy/parameter_server": {"runtime"},
    "strategy/coordinator": {"runtime", "parameter_server"},
}

# Libraries that only these folders may include: a program that uses no socket needs neither of the first two, and only
# models of libtorch need the third.
LIBRARIES = {
    "boost": {"transport/tcp"},
    "openssl": {"transport/tcp", "transport/wire", "transport/secret.hpp"},
    "torch": {"libtorch"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def complaint(header, target):
    """What is wrong with a header that includes another one, both as paths in include/chorale; or nothing."""
    folder, other = header.parts[0], target.parts[0]
    if folder != other:
        below = MAY_INCLUDE[folder]
        return "" if other in below else f"{folder}/ may include {', '.join(sorted(below)) or 'nothing'}"
    room, neighbour = header.parent.as_posix(), target.parent.as_posix()
    if room == folder or neighbour in (room, folder):
        return ""
    may = NEIGHBOURS[room]
    return "" if neighbour.removeprefix(folder + "/") in may else f"{room}/ may include {', '.join(sorted(may)) or 'only its parent'}"


def complaints(header, root):
    """Every wrong #include of one header."""
    own = header.relative_to(root / "chorale")
    for quote, path in INCLUDE.findall(header.read_text()):
        library = path.split("/")[0]
        if quote == '"':
            yield f'includes "{path}"; write <chorale/...>'
        elif library in LIBRARIES and not {own.as_posix(), own.parent.as_posix()} & LIBRARIES[library]:
            yield f"includes <{path}>; only {', '.join(sorted(LIBRARIES[library]))} may include {library}"
        elif library == "chorale" and path != "chorale/config.hpp":
            if not (root / path).is_file():
                yield f"includes <{path}>, which does not exist"
            elif len(own.parts) > 1:
                why = complaint(own, pathlib.Path(path).relative_to("chorale"))
                if why:
                    yield f"includes <{path}>; {why}"


# The longest chain of our headers from the trainer down to one that includes none: to know trainer.hpp is to know these.
DEEPEST = {"chorale/trainer/trainer.hpp": 13}                             # config.hpp, which refuses flags, is the last


def chain(path, root):
    """The longest chain of our headers that begins with this one."""
    @functools.cache
    def longest(name):
        below = [target for _, target in INCLUDE.findall((root / name).read_text()) if target.startswith("chorale/")]
        return (name, *max((longest(target) for target in below), key=len, default=()))
    return longest(path)


ROOMS, PAIRS, LEVELS = 16, 45, 6                                          # of nn/, at most


def rooms_of_nn(root):
    """What is wrong with the rooms of nn/, each a folder with headers: none includes one of its own level or above."""
    includes = {}
    for header in (root / "chorale/nn").rglob("*.hpp"):
        room = header.relative_to(root / "chorale").parent.as_posix()
        targets = (pathlib.Path(path).relative_to("chorale") for _, path in INCLUDE.findall(header.read_text())
                   if path.startswith("chorale/nn/"))
        includes.setdefault(room, set()).update({target.parent.as_posix() for target in targets} - {room})
    levels, left = [], dict(includes)
    while left:
        level = {room for room, below in left.items() if not below & left.keys()}
        if not level:
            yield f"rooms of nn/ include one another: {', '.join(sorted(left))}"
            return
        levels.append(sorted(level))
        left = {room: below for room, below in left.items() if room not in level}
    for name, found, most in (("rooms", len(includes), ROOMS), ("pairs of rooms, of which one includes the other",
                              sum(map(len, includes.values())), PAIRS), ("levels", len(levels), LEVELS)):
        print(f"nn/ has {found} {name}")
        if found > most:
            yield f"nn/ has {found} {name}, at most {most}: {levels}"


# Functions that ask the locale of the program; core/text.hpp, which sets its own, is the one place that may call them.
ASKS_LOCALE = re.compile(r"\b(?:v?sn?printf|fprintf|strto(?:d|f|ld)|sto(?:d|f|ld)|atof|sscanf|strftime|put_time|"
                         r"is(?:alpha|digit|space|alnum|print|xdigit)|to(?:lower|upper))\s*\(")


def asks_locale(header):
    """Lines of a header that format or read by the locale, other than in comments."""
    if header.as_posix().endswith("core/text.hpp"):
        return
    for number, line in enumerate(header.read_text().splitlines(), 1):
        found = ASKS_LOCALE.search(line.partition("//")[0])
        if found:
            yield f"line {number}: {found[0]}..) asks the locale; write formatted() or number_text() of core/text.hpp"


def main(root):
    """Returns 1 if an #include is wrong, a chain of them too long, or a header formats by the locale."""
    headers = sorted(root.rglob("*.hpp")) + sorted(root.rglob("*.cuh"))
    wrong = 0
    for header in headers:
        own = header.relative_to(root / "chorale")
        known = len(own.parts) == 1 or own.parts[0] in MAY_INCLUDE
        if not known or len(own.parts) > 2 and own.parent.as_posix() not in NEIGHBOURS:
            print(f"FAILED: {header}: {own.parent}/ is in no table of layers")
            wrong += 1
            continue
        for text in (*complaints(header, root), *asks_locale(header)):
            print(f"FAILED: {header}: {text}")
            wrong += 1
    for text in rooms_of_nn(root):
        print(f"FAILED: {text}")
        wrong += 1
    for path, most in DEEPEST.items():
        deep = chain(path, root)
        if len(deep) > most:
            print(f"FAILED: {path} includes {len(deep)} deep, at most {most}: {' > '.join(deep)}")
            wrong += 1
    if not wrong:
        print(f"PASSED: {len(headers)} headers include only what is below them")
    return 1 if wrong or not headers else 0


sys.exit(main(pathlib.Path("include")))
