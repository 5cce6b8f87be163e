#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include of every header against the table of layers: a folder includes only what is below it."""
import pathlib
import re
import sys

BASE = {"core", "observe", "device"}
COMPUTED = BASE | {"tensor"}        # the two halves never include each other
TRAVELS = BASE | {"transport"}
BELOW_STRATEGY = COMPUTED | TRAVELS | {"optim", "data", "placement", "checkpoint", "reduce", "cluster", "nn"}

MAY_INCLUDE = {
    "core": set(),
    "observe": {"core"},
    "device": {"core", "observe"},
    "tensor": BASE, "transport": BASE,
    "optim": COMPUTED, "data": COMPUTED, "placement": COMPUTED, "checkpoint": COMPUTED,
    "reduce": TRAVELS, "cluster": TRAVELS,
    "nn": COMPUTED | {"optim"},
    "strategy": BELOW_STRATEGY,
    "trainer": BELOW_STRATEGY | {"strategy"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def complaints(header, root):
    folder = header.parent.name
    below = MAY_INCLUDE.get(folder, set())
    for quote, path in INCLUDE.findall(header.read_text()):
        if quote == '"':
            yield f'includes "{path}"; write <chorale/...>'
        elif path.startswith("chorale/") and path != "chorale/config.hpp":
            target = path.split("/")[1]
            if not (root / path).is_file():
                yield f"includes <{path}>, which does not exist"
            elif header.parent != root / "chorale" and target != folder and target not in below:
                yield f"includes <{path}>; {folder}/ may include {', '.join(sorted(below)) or 'nothing'}"


def main(root):
    headers = sorted(root.rglob("*.hpp")) + sorted(root.rglob("*.cuh"))
    wrong = 0
    for header in headers:
        if header.parent != root / "chorale" and header.parent.name not in MAY_INCLUDE:
            print(f"FAILED: {header}: {header.parent.name}/ is not in the table of layers")
            wrong += 1
        for complaint in complaints(header, root):
            print(f"FAILED: {header}: {complaint}")
            wrong += 1
    if not wrong:
        print(f"PASSED: {len(headers)} headers include only what is below them")
    return 1 if wrong or not headers else 0


sys.exit(main(pathlib.Path("include")))
