#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cmake_tests.py PRESET [FILTER]: builds and runs the Catch2 tests with CMake, by a preset of CMakePresets.json.
cmake_tests.py --syntax PRESET [FILTER]: lets the compiler of the preset only read them, which takes less time.

FILTER is a regular expression that a unit's name has, such as 'nn.networks|^core'. The last line is "N passed, N failed,
N skipped; warnings: N", in test cases, with --syntax in units. A unit that does not build is one failed case; `warnings`
counts lines of sources about which the compiler has warned. Logs lie in the preset's folder, with what was built: a
second call builds what has changed. CMAKE_BUILD_PARALLEL_LEVEL is how many compilers run at once: without it, one a core.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
from count_tests import read_log                                           # pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARNING = re.compile(r"^(\S+?:\d+):\d+: warning: .*$", re.MULTILINE)


def run(command, log):
    """Appends to a log what a command says, and says where it failed."""
    with log.open("a") as to:
        return subprocess.run(command, cwd=ROOT, stdout=to, stderr=subprocess.STDOUT, check=False).returncode == 0


def commands_of(folder):
    """The command that compiles each unit: {name: words}."""
    units = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        found = re.search(r"CMakeFiles/([^/]+)\.dir/", words[words.index("-o") + 1])
        if found[1] != "chorale_test_main":
            units[found[1]] = words
    return units


def read_unit(words):
    """What the compiler of a unit says to its syntax: whether it is right, and a text."""
    at = words.index("-o")
    done = subprocess.run([*words[:at], *words[at + 2:], "-fsyntax-only"], cwd=ROOT, capture_output=True, text=True,
                          check=False, env={**os.environ, "LC_ALL": "C"})
    return done.returncode == 0, done.stderr


def report(passed, failed, skipped, text):
    for name in skipped:
        print(f"SKIPPED: {name}")
    for name in failed:
        print(f"FAILED: {name}")
    warnings = sorted({found[0] for found in WARNING.finditer(text)})
    for line in warnings:
        print(line)
    count = len({line.partition(": warning: ")[0].rpartition(":")[0] for line in warnings})
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped; warnings: {count}")
    return 1 if failed or warnings or not passed else 0


def check_syntax(units, log, pool):
    failed, text = [], ""
    for name, (good, said) in zip(units, pool.map(read_unit, units.values())):
        failed += [] if good else [name]
        text += said
        with log.open("a") as to:
            to.write(f"{'PASSED' if good else 'FAILED'}: {name}\n{said}")
        print(f"{'PASSED' if good else 'FAILED'}: {name}", flush=True)
    return report(len(units) - len(failed), failed, [], text)


def build_and_run(preset, units, folder, pool):
    """Several compilers at once, as a core each; one test at a time, as each has threads."""
    def build(name):
        return run(["cmake", "--build", "--preset", preset, "--target", name], folder / f"build.{name}.log")

    build("chorale_test_main")                                             # which all units have
    passed, failed, skipped, text = 0, [], [], ""
    for name, built in zip(units, pool.map(build, units)):
        text += (folder / f"build.{name}.log").read_text(errors="replace")
        one, bad, left_out = [], ["does not build"], []
        if built:
            done = run(["ctest", "--preset", preset, "--tests-regex", f"^{re.escape(name)}$"], folder / "tests.log")
            one, bad, left_out = read_log(folder / "Testing/Temporary/LastTest.log")
            bad = bad if done or bad else ["ends with an error"]
        passed += len(one)
        failed += [f"{name}: {case}" for case in bad]
        skipped += [f"{name}: {case}" for case in left_out]
        print(f"{'FAILED' if bad else 'PASSED'}: {name}: {len(one)} cases", flush=True)
    return report(passed, failed, skipped, text)


def main(*arguments):
    words = [word for word in arguments if word != "--syntax"]
    preset, part = words[0], words[1] if len(words) > 1 else ""
    folder = ROOT / "build" / preset
    folder.mkdir(parents=True, exist_ok=True)
    syntax = "--syntax" in arguments
    for log in [folder / "syntax.log"] if syntax else [folder / "tests.log", *folder.glob("build.*.log")]:
        log.unlink(missing_ok=True)
    if not run(["cmake", "--preset", preset, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], folder / "configure.log"):
        print((folder / "configure.log").read_text()[-3000:])
        return 1
    units = {name: command for name, command in commands_of(folder).items() if re.search(part, name)}
    if not units:
        print(f"chorale: no unit of the tests has a name with {part}.", file=sys.stderr)
        return 1
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", os.cpu_count()))) as pool:
        if syntax:
            return check_syntax(units, folder / "syntax.log", pool)
        return build_and_run(preset, units, folder, pool)


sys.exit(main(*sys.argv[1:]))
