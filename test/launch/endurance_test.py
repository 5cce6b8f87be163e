#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""T41: a job whose workers are killed at random ends with the bits of one that nobody disturbed.

    endurance_test.py LAUNCH ENDURE [SECONDS]

SECONDS (also CHORALE_ENDURANCE_SECONDS) is how long jobs are disturbed, by default 30, or 600 with CHORALE_SLOW, which
tools/test --slow sets: every 5 s on average, kill -9 of one of the two workers, from a fixed seed. All start again each
time, and go on from the newest checkpoint.
"""
import os
import pathlib
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

launch, endure = (os.path.abspath(p) for p in sys.argv[1:3])
SLOW = bool(os.environ.get("CHORALE_SLOW"))
SECONDS = float(sys.argv[3] if len(sys.argv) > 3 else os.environ.get("CHORALE_ENDURANCE_SECONDS") or (600 if SLOW else 30))
BETWEEN_KILLS = 5.0                                             # seconds, the mean
UPDATES = 4_000
PATIENCE = 120                                                  # seconds without a word from a job


class Job:
    def __init__(self, folder):
        names = ("TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        env = {k: v for k, v in os.environ.items() if k not in names and not k.startswith(("CHORALE_", "OMPI_", "SLURM_"))}
        self.process = subprocess.Popen([launch, "-n", "2", "--max-restarts", "10000", "--", endure, folder,
                                         str(UPDATES), "100", "tcp"], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = []
        self.news = queue.Queue()                               # of starts and of the end
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if "starts all tasks again" in line:
                self.news.put("again")
        self.news.put("end")

    def workers(self):
        """Processes that the launcher has started."""
        try:
            text = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in text.split()]

    def text(self):
        return "".join(self.lines)

    def bits(self):
        """What the two workers said last; they must say the same."""
        said = re.findall(rf"bits ([0-9a-f]{{16}}) after {UPDATES} updates", self.text())[-2:]
        return said[0] if len(said) == 2 and said[0] == said[1] else None


def disturbed(job, chance, until):
    """Kills until the time is over, then waits for the end. How often it killed, and how often all started again."""
    kills = again = 0
    while True:
        now = time.monotonic()
        try:
            wait = chance.expovariate(1 / BETWEEN_KILLS) if now < until else PATIENCE
            news = job.news.get(timeout=wait)
        except queue.Empty:
            workers = job.workers()
            if now >= until:
                raise SystemExit(f"FAILED: T41: the job has said nothing for {PATIENCE} s\n{job.text()}")
            if len(workers) != 2:
                continue
            os.kill(chance.choice(workers), 9)
            kills += 1
            news = job.news.get(timeout=PATIENCE)
        if news == "end":
            return kills, again
        again += 1


def main():
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Job(f"{folder}/undisturbed")
        begin = time.monotonic()
        code = undisturbed.process.wait(timeout=PATIENCE)
        if undisturbed.news.get(timeout=PATIENCE) != "end" or code != 0 or not undisturbed.bits():
            raise SystemExit(f"FAILED: T41: an undisturbed job\n{undisturbed.text()}")
        print(f"undisturbed: {time.monotonic() - begin:.1f} s, bits {undisturbed.bits()}")

        chance, until, kills, jobs = random.Random(41), time.monotonic() + SECONDS, 0, 0
        while time.monotonic() < until:
            job = Job(f"{folder}/{jobs}")
            killed, again = disturbed(job, chance, until)
            code = job.process.wait(timeout=PATIENCE)
            kills, jobs = kills + killed, jobs + 1
            if code != 0 or again != killed or job.bits() != undisturbed.bits():
                raise SystemExit(f"FAILED: T41: exit code {code}, {killed} kills, {again} restarts, bits {job.bits()}, "
                                 f"but {undisturbed.bits()} undisturbed\n{job.text()}")
        print(f"{jobs} jobs, {kills} kills and as many restarts in {SECONDS:.0f} s")
        if not SLOW:
            print("SKIPPED: T41 for ten minutes: it is slow. Try: tools/test --slow")
        print(f"{'PASSED' if kills > 0 else 'FAILED'}: T41: a job whose workers are killed ends with the bits of one that "
              "nobody disturbed")
        sys.exit(0 if kills > 0 else 1)


main()
