#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with a name of the release before this one is told the new name, by g++ and by clang where it is installed."""
import os
import re
import shutil
import subprocess
import sys

CASES = {
    "Limits x;": "Timeouts",
    "Failures x{};": "FailureScope",
    "Links x{};": "Topology",
    "CostModel x;": "NetworkModel",
    "Shares x;": "BatchShares",
    "Followed x;": "CheckpointScores",
    "Wire<bf16> x;": "Compressed",
    "auto x = links_of<RingAllReduce>();": "topology_of",
    "auto f = [](auto& trainer) { return follow(trainer, 0); };\nstruct T {} t;\nvoid g() { f(t); }": "evaluate_checkpoints",
}
failed = 0
for compiler in ("g++", "clang++"):
    if not shutil.which(compiler):
        print(f"SKIPPED: old names under {compiler}: it is not installed")
        continue
    for code, name in CASES.items():
        if compiler == "clang++" and name in ("Compressed", "evaluate_checkpoints"):
            print(f"SKIPPED: {compiler}: {name} replaced a template, about which it does not warn")
            continue
        program = "#include <chorale/reduce/ring.hpp>\n#include <chorale/renamed.hpp>\nusing namespace chorale;\n" + code
        ran = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Werror=deprecated-declarations", "-Iinclude",
                              "-x", "c++", "-"], input=program, capture_output=True, text=True, check=False,
                             env={**os.environ, "LC_ALL": "C"})
        errors = re.findall(r"error: (.*)", ran.stderr)
        good = ran.returncode != 0 and errors and f"is now {name}" in errors[0]
        failed += not good
        print(("PASSED: " if good else "FAILED: ") + f"{compiler}: {code.split()[0]} is told {name}")
        if not good:
            print(ran.stderr[:2000])
sys.exit(failed != 0)
