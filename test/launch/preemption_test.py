#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM at random updates leaves one committed checkpoint, from which the job goes on with equal bits.

    preemption_test.py LAUNCH ENDURE [EACH]

EACH is how often each of 16 cells is tried: the chief, a worker, the launcher or all of them are sent SIGTERM; 2 and 4
ranks; TCP and shared memory. By default three of the cells once; with CHORALE_SLOW, which tools/test --slow sets,
each 13 times, which are 208 checkpoints.
"""
import itertools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

launch, endure = (os.path.abspath(p) for p in sys.argv[1:3])
SLOW = bool(os.environ.get("CHORALE_SLOW"))
EACH = int(sys.argv[3]) if len(sys.argv) > 3 else 13 if SLOW else 0
UPDATES = 150
LAST = 120                                                      # a signal after this one might come after the last update
TARGETS = ("the chief", "a worker", "the launcher", "all")
PATIENCE = 120                                                  # seconds that a job may take
ENV = {k: v for k, v in os.environ.items()
       if k not in ("TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") and
       not k.startswith(("CHORALE_", "OMPI_", "SLURM_"))}


class Failed(Exception):
    pass


def started(folder, ranks, transport):
    """A launcher, whose tasks end with it; after PATIENCE it is killed."""
    command = [launch, "-n", str(ranks), "--", endure, folder, str(UPDATES), "0", transport, "say"]
    job = subprocess.Popen(command, env=ENV, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    limit = threading.Timer(PATIENCE, job.kill)
    limit.daemon = True
    limit.start()
    return job


def tasks(job):
    """{rank: process} of the tasks of a launcher."""
    found = {}
    for pid in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        task = re.search(rb"CHORALE_TASK=worker:(\d+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        found[int(task.group(1))] = int(pid)
    return found


def bits(text, ranks):
    """What all ranks said last: the same."""
    said = set(re.findall(rf"bits ([0-9a-f]{{16}}) after {UPDATES} updates", text))
    return said.pop() if len(said) == 1 and text.count(f"after {UPDATES} updates") == ranks else None


def preempted(folder, ranks, transport, target, chance):
    """Asks a job to end after a random update. False if it was faster."""
    job = started(folder, ranks, transport)
    asked_at, text = chance.randint(1, LAST), ""
    for line in job.stdout:
        text += line
        if line.strip() != f"[w{ranks - 1}] update {asked_at}":
            continue
        here = tasks(job)
        pids = {"the chief": [here[0]], "a worker": [here[chance.randint(1, ranks - 1)]], "the launcher": [job.pid],
                "all": [job.pid, *here.values()]}[target]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
    code = job.wait()
    if code == 0 and bits(text, ranks):
        return False
    told = re.findall(r"\] (\d+) checkpoints: asked to end after update (\d+); a checkpoint is in ", text)
    left = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if code != 143 or "signal" in text or len(told) != ranks or len(set(told)) != 1 or told[0][0] != "1":
        raise Failed(f"SIGTERM to {target} after update {asked_at}: exit code {code}, folder {left}\n{text}")
    if left != [f"ckpt-{int(told[0][1]):06}"] or int(told[0][1]) < asked_at:
        raise Failed(f"SIGTERM to {target} after update {asked_at}: they said {told[0]}, and the folder has {left}")
    return True


def finished(folder, ranks, transport):
    job = started(folder, ranks, transport)
    text, _ = job.communicate()
    if job.returncode != 0 or not bits(text, ranks):
        raise Failed(f"exit code {job.returncode} of a job that nobody disturbs\n{text}")
    return bits(text, ranks), int(re.search(r"update (\d+)", text).group(1))


def main():
    chance, tried, faster, begin = random.Random(15), 0, 0, time.monotonic()
    cells = list(itertools.product((2, 4), ("tcp", "shm"), TARGETS))
    if EACH == 0:
        cells = [(2, "tcp", "all"), (2, "tcp", "a worker"), (2, "shm", "the launcher")]
    undisturbed = {}
    with tempfile.TemporaryDirectory() as folder:
        for ranks, transport in sorted({cell[:2] for cell in cells}):
            undisturbed[ranks, transport], _ = finished(f"{folder}/{ranks}-{transport}", ranks, transport)
        for (ranks, transport, target), i in itertools.product(cells, range(max(EACH, 1))):
            here = f"{folder}/{ranks}-{transport}-{target.replace(' ', '-')}-{i}"
            while not preempted(here, ranks, transport, target, chance):
                faster += 1
                subprocess.run(["rm", "-r", here], check=True)
            first = int(os.listdir(here)[0].removeprefix("ckpt-")) + 1
            said = finished(here, ranks, transport)
            if said != (undisturbed[ranks, transport], first):
                raise Failed(f"{target}, {ranks} ranks, {transport}: bits and first update {said}, not "
                             f"{undisturbed[ranks, transport], first}")
            tried += 1
    print(f"{tried} checkpoints after SIGTERM, each the only one, resumed with equal bits in "
          f"{time.monotonic() - begin:.0f} s; {faster} jobs had ended before they were asked to")
    if EACH == 0:
        print("SKIPPED: SIGTERM for 208 checkpoints: it is slow. Try: tools/test --slow")
    print("PASSED: SIGTERM to any process of a job leaves one checkpoint, which resumes with equal bits")


try:
    main()
except Failed as failure:
    print(f"FAILED: {failure}")
    sys.exit(1)
