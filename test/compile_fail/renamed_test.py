#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with names of the release before this one is told the new names, by g++ and by clang where it is installed."""
import os
import re
import shutil
import subprocess
import sys

CASES = {
    "Limits a;": "Timeouts",
    "Failures b{};": "FailureScope",
    "Links c{};": "Topology",
    "CostModel d;": "NetworkModel",
    "Shares e;": "BatchShares",
    "Followed f;": "CheckpointScores",
    "Verdict v;": "FirstFlaw",
    "Wire<bf16> g;": "Compressed",
    "auto h = links_of<RingAllReduce>();": "topology_of",
    "auto k = links_for_training<RingAllReduce>();": "topology_for_training",
    "auto i = [](auto& trainer) { return follow(trainer, 0); };\nstruct T {} t;\nvoid j() { i(t); }": "evaluate_checkpoints",
}
QUIET = ("Compressed", "evaluate_checkpoints")                             # templates: clang does not warn of them
PROGRAM = "#include <chorale/reduce/ring.hpp>\n#include <chorale/renamed.hpp>\nusing namespace chorale;\n"
failed = 0
for compiler in ("g++", "clang++"):
    if not shutil.which(compiler):
        print(f"SKIPPED: old names under {compiler}: it is not installed")
        continue
    cases = {code: name for code, name in CASES.items() if compiler == "g++" or name not in QUIET}
    ran = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Werror=deprecated-declarations", "-Iinclude",
                          "-x", "c++", "-"], input=PROGRAM + "\n".join(cases), capture_output=True, text=True,
                         check=False, env={**os.environ, "LC_ALL": "C"})
    errors = "\n".join(re.findall(r"error: (.*)", ran.stderr))
    for code, name in cases.items():
        good = ran.returncode != 0 and f"is now {name}" in errors
        failed += not good
        print(("PASSED: " if good else "FAILED: ") + f"{compiler}: {code.splitlines()[0]} is told {name}")
    for name in QUIET if compiler == "clang++" else ():
        print(f"SKIPPED: {compiler}: {name} replaced a template, about which it does not warn")
if failed:
    print(ran.stderr[:4000])
sys.exit(failed != 0)
