#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases in what Bazel wrote: count_tests.py FOLDER, with ROUND.json (events) and ROUND.rc a round. The
targets in a file `left`, a line each, are skipped.

A log has lines `PASSED: name`, `FAILED: name` and `SKIPPED: name: reason`. A target without such lines is one case,
with Bazel's verdict, or none if it says `NONE: why`. A case that made no check because it was skipped says PASSED with
0 checks: it counts as skipped only.
"""
import json
import pathlib
import re
import sys
import urllib.parse

LINE = re.compile(r"^(PASSED|FAILED|SKIPPED): (.*)$", re.MULTILINE)
NO_CASES = re.compile(r"^(NONE: |No test cases matched )", re.MULTILINE)
NO_CHECKS = re.compile(r" \(0 checks, [0-9.]+ s\)$")


def read_log(path):
    """The cases of one log: (passed, failed, skipped), lists of names."""
    cases = {"PASSED": [], "FAILED": [], "SKIPPED": []}
    skipped_now = False
    for verdict, name in LINE.findall(path.read_text(errors="replace")):
        if verdict == "PASSED" and skipped_now and NO_CHECKS.search(name):
            skipped_now = False
            continue
        skipped_now = verdict == "SKIPPED"
        cases[verdict].append(name.strip())
    return cases["PASSED"], cases["FAILED"], cases["SKIPPED"]


def read_events(path):
    """What Bazel reports: {label: (status, [logs])} of the tests, and the labels that do not build."""
    tests, broken = {}, []
    for text in path.read_text().splitlines() if path.exists() else []:
        event = json.loads(text)
        kind, = event["id"]
        label = event["id"][kind].get("label", "") if isinstance(event["id"][kind], dict) else ""
        if kind == "testResult" and kind in event:
            status, logs = tests.setdefault(label, ("", []))
            logs += [pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
                     for output in event["testResult"].get("testActionOutput", []) if output["name"] == "test.log"]
        elif kind == "testSummary" and kind in event:
            tests[label] = (event["testSummary"]["overallStatus"], tests.get(label, ("", []))[1])
        elif kind == "targetCompleted" and not event.get("completed", {}).get("success", False):
            broken.append(label)
        elif kind in ("pattern", "unconfiguredLabel", "configuredLabel") and "aborted" in event:
            broken.append(label or str(event["id"][kind]))
    return tests, [label for label in dict.fromkeys(broken) if tests.get(label, ("",))[0] not in ("PASSED", "FLAKY")]


def main(folder):
    passed, failed, skipped = [], [], []
    bad_end = False
    for rc in sorted(folder.glob("*.rc")):
        tests, broken = read_events(rc.with_suffix(".json"))
        for label, (status, logs) in sorted(tests.items()):
            if label in broken:
                continue
            ok = status in ("PASSED", "FLAKY")
            cases = [read_log(log) for log in logs if log.exists()]
            p, f, s = ([f"{label}: {name}" for case in cases for name in case[i]] for i in range(3))
            none = any(NO_CASES.search(log.read_text(errors="replace")) for log in logs if log.exists())
            if ok and not (p or f or s or none):
                p = [label]
            if not ok and not f:
                f = [f"{label}: {status.lower() or 'no result'}"]
            passed += p
            failed += f
            skipped += s
        failed += [f"{label}: does not build" for label in broken]
        bad_end |= rc.read_text().strip() not in ("0", "4")              # 4: nothing there to test
    left = folder / "left"
    skipped += [f"{label}: tools/test --all" for label in left.read_text().split()] if left.exists() else []
    if bad_end and not failed:
        failed = ["bazel: its words are above"]
    for name in skipped:
        print(f"SKIPPED: {name}")
    for name in failed:
        print(f"FAILED: {name}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    if not (passed or failed or skipped):
        print("chorale: no test matches. Try: tools/test --help", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
