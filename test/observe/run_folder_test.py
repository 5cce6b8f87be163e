#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_folder_test.py RUN_FOLDER PLOT: a run's files, read with the readers of others; what PLOT makes of them."""
import csv
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

STEPS, RANKS = 120, 3
ROWS = ["step", "compute", "communication", "wait", "input", "checkpoint"]
SVG = "{http://www.w3.org/2000/svg}"


def json_of(file):
    def refuse(word):
        raise ValueError(f"{word} is no JSON")
    return json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frames(data):
    """The records of a TFRecord file, each checked."""
    def checked(part, mark):
        crc = crc32c(part)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert struct.unpack("<I", mark)[0] == masked, "a checksum is wrong"
        return part

    while data:
        length = struct.unpack("<Q", checked(data[:8], data[8:12]))[0]
        yield checked(data[12:12 + length], data[12 + length:16 + length])
        data = data[16 + length:]


def timelines(folder):
    for rank in range(RANKS):
        events = json_of(folder / f"trace-{rank}.json")["traceEvents"]
        timed = [e for e in events if e["ph"] == "X"]
        yield f"trace-{rank}.json has one rank", {e["pid"] for e in events} == {rank}
        yield f"trace-{rank}.json names its rows", [
            e["args"]["name"] for e in events if e["name"] == "thread_name"] == ROWS
        yield f"trace-{rank}.json has {4 * STEPS} events, each in its row", len(timed) == 4 * STEPS and all(
            ROWS[e["tid"]] == e["cat"] and e["dur"] >= 0 for e in timed)
        yield f"trace-{rank}.json has every byte that was sent", sum(
            e["args"].get("bytes", 0) for e in timed) == (0 if rank == 0 else 24 * STEPS)
    merged = json_of(folder / "trace.json")
    timed = [e for e in merged["traceEvents"] if e["ph"] == "X"]
    yield "trace.json has all of them, in the order of time, from 0 on", (
        len(timed) == 4 * STEPS * RANKS and timed[0]["ts"] == 0
        and all(a["ts"] <= b["ts"] for a, b in zip(timed, timed[1:])))
    yield "trace.json keeps names with quotes and signs", any(e["name"] == 'gradient <"w">' for e in timed)
    yield "trace.json says how far clocks are apart", merged["otherData"]["clock_error_ns"] == 80


def curves(folder):
    with open(folder / "scalars.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    yield "scalars.csv has a row for each step", [int(row["step"]) for row in rows] == list(range(STEPS))
    yield "scalars.csv has val_loss at each tenth", [i for i, row in enumerate(rows) if row["val_loss"]] == list(
        range(0, STEPS, 10))
    losses = [float(row["loss"]) for row in rows]
    yield "the run learns", sum(losses[-20:]) < 0.5 * sum(losses[:20])
    for run, records in [("train", 2 + STEPS + STEPS // 10 + 1), ("validation", 2 + STEPS // 10)]:
        file, = (folder / run).iterdir()
        found = list(frames(file.read_bytes()))
        yield f"{run}/ has {records} events", len(found) == records and b"brain.Event:2" in found[0]


def page(folder):
    line = re.compile(r'[a-z_]+({[a-z]+="([^"\\\n]|\\["\\n])*"(,[a-z]+="([^"\\\n]|\\["\\n])*")*})? \S+\n')
    lines = (folder / "metrics.prom").read_text(encoding="utf-8").splitlines(keepends=True)
    samples = [text for text in lines if not text.startswith("#")]
    yield "metrics.prom has lines that Prometheus reads", all(line.fullmatch(text) for text in samples) and all(
        re.match(r"# (HELP|TYPE) [a-z_]+ ", text) for text in lines if text.startswith("#"))
    yield "metrics.prom counts the bytes of the ranks that send", (
        f'chorale_sent_bytes_total{{operation="sum",category="communication",rank="2"}} {24 * STEPS}\n' in samples)


def picture(file, x_name, title):
    root = xml.etree.ElementTree.parse(file).getroot()
    texts = [element.text for element in root.iter(SVG + "text")]
    yield f"{file.name} is a picture with a panel for loss and accuracy", {"loss", "accuracy", x_name} < set(texts)
    yield f"{file.name} has a title for those who cannot see it", root.find(SVG + "title").text == title


def refusals(plot, folder):
    def refused(*arguments):
        run = subprocess.run([plot, *arguments], capture_output=True, text=True, check=False)
        said = run.returncode == 2 and run.stderr.count("chorale: ") == 1 and "Try: " in run.stderr
        return said or print(run.returncode, run.stderr)
    bad = folder / "bad"
    bad.mkdir()
    yield "plot refuses a call without a folder", refused()
    yield "plot refuses an axis that there is not", refused(folder, "--by", "colour")
    yield "plot refuses a folder without curves", refused(bad)
    (bad / "scalars.csv").write_text("step,loss\n1,2,3\n", encoding="utf-8")
    yield "plot refuses a broken table", refused(bad)
    (bad / "scalars.csv").write_text("step,loss\n1,2\n", encoding="utf-8")
    (bad / "trace-0.json").write_text("[", encoding="utf-8")
    yield "plot refuses a broken timeline", refused(bad)


def checks(run, plot, folder):
    said = subprocess.run([run, folder], check=True, capture_output=True, text=True).stdout
    yield "a run says why it is slow, and who is", bool(
        re.fullmatch(r"why slow: \w+ takes .*Try: .*\nstraggler: .*\n", said))
    said = subprocess.run([plot, folder], check=True, capture_output=True, text=True).stdout
    yield "plot says what it wrote", bool(re.fullmatch(
        r".*/plot.svg: 120 rows of loss, accuracy, val_loss, val_accuracy\n"
        r".*/trace.json: 1440 events of 3 ranks, clocks within 0.1 us\n", said))
    yield from timelines(folder)
    yield from curves(folder)
    yield from page(folder)
    yield from picture(folder / "plot.svg", "step", "curves by step")
    named = folder / "named.svg"
    subprocess.run([plot, folder, "--by", "seconds", "--title", 'a <b> & "c"', "--out", named], check=True,
                   stdout=subprocess.DEVNULL)
    yield from picture(named, "seconds", 'a <b> & "c"')
    yield from refusals(plot, folder)


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for what, holds in checks(sys.argv[1], sys.argv[2], pathlib.Path(folder)):
            print(f"{'PASSED' if holds else 'FAILED'}: {what}")
            failed |= not holds
    return failed


sys.exit(main())
