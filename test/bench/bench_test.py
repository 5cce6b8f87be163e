#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_test.py PROGRAM NAME: a short run of a benchmark prints the rows that it should, each a JSON object.

The times are of a busy machine and of code that is hardly optimised, so that nothing is asserted of them but that they are
numbers. What does not depend on the machine is asserted: instructions, allocations, messages and bytes.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

# For each benchmark: the command lines of its short run, and the rows that they print together.
RUNS = {
    "calibrate": ([["--only", "threads"], ["--only", "shared_memory"], ["--only", "tcp"]],
                  {"calibrate/threads": 3, "calibrate/shared_memory": 3, "calibrate/tcp": 3}),
    "checkpoint": ([["--mib", "1", "--rounds", "1", "--folder", "."]],
                   {f"checkpoint/{row}": 1
                    for row in ("save", "behind", "step", "load_from_disk", "load_from_memory")}),
    "compile": ([["--root", os.getcwd(), "--only", "empty", "--compilers", "g++", "--levels", "0", "--rounds", "1"]],
                {f"compile/empty/g++/O0/{form}": 1 for form in ("headers", "compiled", "precompiled")}),
    "embedding": ([["--quick", "--rounds", "1", "--steps", "3"]],
                  {f"embedding_quick/{rule}/{n}": 1 for rule in ("sgd", "adagrad") for n in (1, 2)}),
    "input": ([["--quick", "--rounds", "1"]],
              {"input/tfrecord_4k": 1, "input/tfrecord_64k": 1, "input/jpeg": 1, "input/jpeg_64": 1, "input/shuffle": 1,
               "input/batch": 1, "input/chain": 2, "input/prefetch": 1}),
    "libtorch": ([[]], {}),                                 # without libtorch, as all of them: see test/bench/BUILD
    "models": ([["--quick", "--rounds", "1", "--steps", "2", "--threads", "1"]],
               {f"models_quick/{model}": 1
                for model in ("lenet", "character_gpt", "tickets", "dlrm", "resnet", "gan")}),
    "one_client": ([["--replicas", "1", "3", "--steps", "2"]], {"one_client/memory": 2, "one_client/tcp": 2}),
    "one_process": ([["--runs", "1", "--busy-runs", "1", "--epochs", "1"]],
                    {"one_process/threads": 3, "one_process/replicas": 3}),
    "overlap": ([["--quick", "--rounds", "1"]], {"overlap/cnn": 4, "overlap/mlp": 4}),
    "pjrt_step": ([["--rounds", "1", "--steps", "1"]],
                  {"pjrt_step/lenet": 1, "pjrt_step/gpt": 1} if os.environ.get("CHORALE_PJRT_PLUGIN") else {}),
    "products": ([["--rounds", "1", "--steps", "4"]], {"products/mlp": 2, "products/convolutions": 2}),
    "ps": ([["--rounds", "1", "--servers", "1", "--case", "push_rows"],
            ["--rounds", "1", "--servers", "2", "--case", "empty"]], {"ps/push_rows": 1, "ps/empty": 1}),
    "reduce": ([["--rounds", "1", "--largest", "1024", "--ranks", "2", "4"]],
               {"reduce/sent": 16, "reduce/threads": 2, "reduce/agreement": 1, "reduce/shared_memory": 2,
                "reduce/shared_memory_own": 2, "reduce/tcp": 2}),
    "scaling": ([["--only", "servers", "--largest", "8", "--simulate", "8"], ["--only", "step", "--largest", "2"],
                 ["--only", "step", "--quick", "--simulate", "2"], ["--only", "grid", "--cases", "5"],
                 ["--only", "form", "--largest", "4"], ["--only", "mesh", "--quick"],
                 ["--only", "measured", "--quick"]], None),
    "sharded": ([["--quick", "--rounds", "1", "--steps", "2", "--ranks", "2"]],
                {f"sharded_quick/{form}": 1 for form in
                 ("mirrored", "zero1", "zero2", "zero3", "mirrored_50304", "tensor", "pipeline")}),
    "staleness": ([["--epochs", "1", "--largest", "4", "--drawn", "640"]],
                  {f"staleness/{row}": 1 for row in
                   ("staleness 16", "staleness 4", "staleness 0", "synchronous", "1 backup")} |
                  {"staleness/asynchronous": 2}),
    "startup": ([["--rounds", "1"]], None),
    "trainer": ([[]], None),
    "training": ([["--rounds", "1"]], None),
    "weak_scaling": ([["--rounds", "1", "--steps", "10"]], {"weak_scaling": 6}),
}
# Rows whose number depends on the machine, or of which there are many: at least one of each.
SOME = {
    "scaling": {"servers/synchronous", "servers/asynchronous", "step/ring", "step/halving, doubling", "advice/grid",
                "form/mirrored", "form/Zero::three", "form/pipeline", "mesh/2x2x2", "measured/mirrored"},
    "startup": {"startup/ours"},
    "trainer": {"trainer/allocations per step", "trainer/mean loss"},
    "training": {"training/chorale", "training/by_hand"} |
                ({"training/compared"} if len(os.sched_getaffinity(0)) > 1 else set()),
}


def complain(text):
    complaints.append(text)


def rows_of(program, name, arguments):
    """What one run prints: every line is an object with a name and finite numbers."""
    env = {key: value for key, value in os.environ.items() if key not in ("CHORALE_MNIST", "CHORALE_PYTHON")}
    with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
        run = subprocess.run([program, "--json", *arguments], cwd=folder, capture_output=True, text=True, check=False,
                             env={**env, "CHORALE_BENCH": name, "CHORALE_MPI": ""})
    for line in run.stderr.splitlines():
        if line.startswith("SKIPPED: "):
            print(f"SKIPPED: bench/{name}: {line.removeprefix('SKIPPED: ')}")
    if run.returncode:
        complain(f"{arguments}: it ended with {run.returncode}: {run.stderr}")
    rows = []
    for line in run.stdout.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            complain(f"{arguments}: a line is not JSON: {line}")
            continue
        bad = {key: value for key, value in row.items()
               if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value))}
        if not isinstance(row.get("bench"), str) or len(row) < 2 or bad:
            complain(f"{arguments}: a row without a name, without a value or with a value that is none: {line}")
        rows.append(row)
    return rows


def check_trainer(rows):
    for row in rows:
        if row["bench"] == "trainer/instructions per step":
            # The goal: Trainer adds at most a ten-thousandth to the loop written by hand.
            if not 0.99 < row["ratio"] <= 1.0001:
                complain(f"instructions of Trainer over the loop by hand: {row['ratio']}, wanted at most 1.0001")
        elif row["bench"] == "trainer/allocations per step":
            if row["measured"] != 0 or row["by_hand"] != 0:
                complain(f"allocations per step after the first: {row['measured']}, by hand {row['by_hand']}, wanted 0")
        elif not math.isclose(row["measured"], row["by_hand"], rel_tol=1e-3):   # sums have another order by hand
            complain(f"the mean loss is {row['measured']}, by hand {row['by_hand']}, wanted within 0.1 %")


def check_reduce(rows):
    for row in rows:
        if row["bench"] != "reduce/sent":
            continue
        if not row["sent_bytes"] == row["planned_bytes"] == row["cost_bytes"]:
            complain(f"{row['algorithm']} on {row['ranks']} ranks sent {row['sent_bytes']} bytes; its schedule says "
                     f"{row['planned_bytes']}, cost() {row['cost_bytes']}")
        if row["messages"] != row["planned_messages"] or row["messages"] < 1:
            complain(f"{row['algorithm']} on {row['ranks']} ranks sent {row['messages']} messages; its schedule says "
                     f"{row['planned_messages']}")


def check_staleness(rows):
    """640 rows in batches of 64 are ten pushes."""
    for row in rows:
        if row["bench"] == "staleness/asynchronous" and row["updates"] != 10:
            complain(f"{row['workers']} asynchronous workers made {row['updates']} updates of ten batches")


def check_compile(rows):
    """The compiled form leaves code out, also where a program uses none of it."""
    size = {row["bench"].rpartition("/")[2]: row["bytes"] for row in rows}
    if not 0 < size["compiled"] < size["headers"] or not 0 < size["precompiled"] < size["headers"]:
        complain(f"an empty program has more bytes in the compiled form than over headers: {size}")


CHECKS = {"compile": check_compile, "trainer": check_trainer, "reduce": check_reduce, "staleness": check_staleness}


def main(program, name):
    if name == "all":                                                      # is each benchmark among the above?
        there = {file.stem for file in pathlib.Path("bench").glob("*.cpp")}
        if there != set(RUNS):
            complain(f"bench/ has {sorted(there)}; RUNS of this file has {sorted(RUNS)}")
        return "every benchmark has a short run"
    runs, wanted = RUNS[name]
    rows = [row for arguments in runs for row in rows_of(os.path.abspath(program), name, arguments)]
    names = [row.get("bench") for row in rows]
    counts = {one: names.count(one) for one in dict.fromkeys(names)}
    if wanted is not None and counts != wanted:
        complain(f"rows: {counts}, wanted: {wanted}")
    if missing := SOME.get(name, set()) - set(names):
        complain(f"no row of {sorted(missing)}; there are {counts}")
    CHECKS.get(name, lambda rows: None)(rows)
    return f"bench/{name} runs, and prints the rows that it should"


complaints = []
what = main(*sys.argv[1:])
for complaint in complaints[:20]:
    print(complaint)
print(f"{'FAILED' if complaints else 'PASSED'}: {what}")
sys.exit(1 if complaints else 0)
