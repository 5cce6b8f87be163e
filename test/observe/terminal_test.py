#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terminal_test.py EXAMPLE: what the progress of fit looks like on terminals of several widths, in a pipe, and on the
terminal that mpirun gives to a rank."""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time

STEPS, EPOCHS = 100, 2
WAYS = ["--rows", str(STEPS * 64), "--epochs", str(EPOCHS)]
BAR = re.compile(rf" *\d+/{STEPS} ")


def screens(program, columns):
    """What a terminal of tmux shows, again and again until the program has ended; at last with wrapped lines joined."""
    socket = ["tmux", "-L", f"chorale-{os.getpid()}-{columns}", "-f", "/dev/null"]
    with tempfile.TemporaryDirectory() as folder:
        done = pathlib.Path(folder) / "done"
        command = f"'{program}' {' '.join(WAYS)}; echo $? > '{done}.new'; mv '{done}.new' '{done}'; exec sleep 600"
        clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TMUX")}
        subprocess.run([*socket, "new-session", "-d", "-x", str(columns), "-y", "40", command], check=True, env=clean)

        def capture(*how):
            return subprocess.run([*socket, "capture-pane", "-p", *how], check=True, capture_output=True,
                                  text=True).stdout.splitlines()
        try:
            seen, until = [], time.monotonic() + 240
            while not done.exists() and time.monotonic() < until:
                seen.append(capture())
                time.sleep(0.1)
            return seen, capture("-J"), done.exists() and done.read_text().strip() == "0"
        finally:
            subprocess.run([*socket, "kill-server"], check=False)


def on_terminal(program, columns):
    seen, last, well = screens(program, columns)
    moving = [line for screen in seen for line in screen if " - ETA: " in line]
    yield f"{columns} columns: the program ends well", well
    yield f"{columns} columns: the line moves", len({line for line in moving}) > 3
    yield f"{columns} columns: it never wraps", all(BAR.match(line) and len(line) < columns for line in moving)
    yield f"{columns} columns: it has loss and accuracy", all(
        re.search(r" - loss: \d\.\d{4} - accuracy: \d\.\d{4}$", line) for line in moving)
    yield f"{columns} columns: it is there once for each epoch", all(
        sum(1 for line in screen if BAR.match(line)) <= sum(1 for line in screen if line.startswith("Epoch "))
        for screen in seen)
    bars = [line.rstrip() for line in last if BAR.match(line)]
    whole = rf"{STEPS}/{STEPS} (\[=+\] )?- \d+s \d+[mu]?s/step - loss: \S+ - accuracy: \S+ - learning_rate: \S+ - \S+ images/s"
    yield f"{columns} columns: the last lines are whole", len(bars) == EPOCHS and all(
        re.fullmatch(whole, line) for line in bars)
    width = max(len(line.partition("]")[0].partition("[")[2]) for line in moving)
    yield f"{columns} columns: the bar has {'30 cells' if columns > 90 else 'fewer cells, or there is none'}", (
        width == 30 if columns > 90 else width < 30)


def plain(text):
    lines = [line for line in text.splitlines() if BAR.match(line)]
    return "\b" not in text and "\r" not in text.replace("\r\n", "\n") and "ETA" not in text and len(lines) == EPOCHS


def on_rank(program):
    """The output on a terminal, as that which mpirun gives to rank 0 and whose output it forwards."""
    ours, its = pty.openpty()
    env = {**os.environ, "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0", "TERM": "xterm"}
    with subprocess.Popen([program, *WAYS], stdout=its, stderr=subprocess.DEVNULL, env=env) as run:
        os.close(its)
        text = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:                                         # nobody has the other end any more
                part = b""
            if not part:
                break
            text += part
    os.close(ours)
    return run.returncode == 0 and plain(text.decode())


def checks(program):
    piped = subprocess.run([program, *WAYS], capture_output=True, text=True, check=True).stdout
    yield "in a pipe there is one line for each epoch", plain(piped)
    yield "on the terminal of a rank of mpirun there is one line for each epoch", on_rank(program)
    if not shutil.which("tmux"):
        print("SKIPPED: progress on a terminal of 60, 80 and 200 columns: there is no tmux")
        return
    for columns in (60, 80, 200):
        yield from on_terminal(program, columns)


def main():
    failed = False
    for what, holds in checks(str(pathlib.Path(sys.argv[1]).resolve())):
        print(f"{'PASSED' if holds else 'FAILED'}: {what}", flush=True)
        failed |= not holds
    return failed


sys.exit(main())
