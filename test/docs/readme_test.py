#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does what README.md and examples/README.md say, in a fresh clone of this checkout: commands, program, and command line.

The clone has what is committed, and what is changed and not yet committed. Nothing is installed, no network is used.
The program is compiled with the README's own line, without data and with a few drawn rows in MNIST's format. Commands
that train are read, and the smoke test of their example is named; with CHORALE_SLOW they are run in order, each as it
stands there, on files of these names. The Bazel snippet is built by //test/consumer, out of the README.
"""
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path("WORKSPACE").resolve().parent
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "OMP_NUM_THREADS": "2"}
failed = 0


def verdict(good, what, why=""):
    global failed
    failed += not good
    if not good and why:
        print(why[-3000:])
    print(f"{'PASSED' if good else 'FAILED'}: {what}")
    return good


def run(*command, cwd, home=None):
    env = ENV | {"HOME": str(home or cwd)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def git(*arguments, cwd=ROOT):
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout


def clone_to(folder):
    git("clone", "--quiet", "--shared", str(ROOT), str(folder))
    for name in git("diff", "--name-only", "--diff-filter=D", "HEAD").splitlines():
        (folder / name).unlink(missing_ok=True)
    for name in git("ls-files", "--modified", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_of(readme):
    lines = [line.partition("#")[0].strip() for line in "".join(blocks(readme, "sh")).splitlines()]
    return [line for line in lines if line.startswith("tools/")]


def check_commands(clone, readme):
    """Each line of the README's blocks of commands is one of a tool that is there, with flags that it has."""
    helped = run("tools/run", "--help", cwd=clone)
    verdict(helped.returncode == 0, "tools/run --help", helped.stderr)
    tools = {"tools/run": helped.stdout}
    for tool in ("tools/test", "tools/launch"):
        done = run(tool, "--help", cwd=clone)
        verdict(done.returncode == 0, f"{tool} --help", done.stderr)
        tools[tool] = done.stdout
    smoke = (clone / "examples/BUILD").read_text()
    commands = commands_of(readme + (clone / "examples/README.md").read_text())
    for command in commands:
        words = shlex.split(command)
        known = words[0] in tools and all(
            word.partition("=")[0] in tools[words[0]] for word in words[1:words.index("--") if "--" in words else 1]
            if word.startswith("-"))
        if "--" in words:
            words = words[words.index("--") + 1:]
        name = words[1] if words[0] == "tools/run" and len(words) > 1 else "02_mirrored"
        source = clone / "examples" / f"{name}.cpp"
        text = "".join(file.read_text() for file in [source, *sorted((clone / "examples/support").glob("*"))]
                       if file.is_file())
        for flag in words[2:]:
            if flag.startswith("--//"):                                    # a setting of Bazel: its name, and its value
                known &= all(f'"{part}"' in smoke for part in flag.removeprefix("--//examples:").split("="))
            elif flag.startswith("--"):
                known &= flag in text
        verdict(known and source.is_file() and name in helped.stdout and f'"{name}"' in smoke,
                f"README.md: {command}: its tool, its flags and its example are there, with a smoke test")
    verdict(len(readme.splitlines()) <= 150, f"README.md has {len(readme.splitlines())} lines, at most 150")
    verdict(len(commands) >= 15, f"README.md has {len(commands)} commands")


def write_rows(folder):
    """128 and 32 rows in the four files of MNIST: a stroke whose column is the digit."""
    folder.mkdir(parents=True)
    for name, rows in (("train", 128), ("t10k", 32)):
        labels = bytes(r % 10 for r in range(rows))
        pixels = b"".join(28 * bytes(255 if x // 2 == label + 2 else 0 for x in range(28)) for label in labels)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, rows, 28, 28) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, rows) + labels)


def write_npz(file):
    """The rows of write_rows in the file that Keras fetches."""
    def npy(shape, data):
        about = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(about)) + about + data

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(file, "w") as archive:
        write_rows(pathlib.Path(folder) / "rows")
        for name, of, rows in (("train", "train", 128), ("test", "t10k", 32)):
            for kind, begin, shape in (("x", 16, f"({rows}, 28, 28)"), ("y", 8, f"({rows},)")):
                read = next((pathlib.Path(folder) / "rows").glob(f"{of}-{'images' if kind == 'x' else 'labels'}-*"))
                archive.writestr(f"{kind}_{name}.npy", npy(shape, read.read_bytes()[begin:]))


def run_commands(work, readme):
    """Each command of the README, in order, in the clone; what it names in capitals, or by a file, is made first."""
    clone = work / "chorale"
    write_npz(clone / "mnist.npz")
    text = os.environ.get("CHORALE_SHAKESPEARE") or clone / "text"
    (clone / "text").write_text("".join(page.read_text() for page in sorted((clone / "docs").glob("*.md"))))
    folder = os.environ.get("CHORALE_MINILM")
    for command in commands_of(readme + (clone / "examples/README.md").read_text()):
        words = shlex.split(command)
        if words[0] == "tools/test":
            print(f"SKIPPED: README.md: {command}: this is a part of it")
            continue
        stands_for = {"FILE": str(text)} | ({"FOLDER": folder} if folder else {})
        absent = [word for flag, word in zip(words, words[1:]) if flag == "--weights" and word not in stands_for]
        began = time.monotonic()
        done = run(*(stands_for.get(word, word) for word in words), cwd=clone, home=work)
        took = f"after {time.monotonic() - began:.0f} s"
        if "was absent when this was built" in done.stderr:                # libtorch: "where that is installed"
            absent = ["absent when this was built"]
        if absent:
            told = re.search(rf"^chorale: .*{re.escape(absent[0])}", done.stderr, re.MULTILINE)
            verdict(done.returncode == 2 and told,
                    f"README.md: {command}: ends with {done.returncode} {took}, and says: {absent[0]}",
                    done.stdout + done.stderr)
            print(f"SKIPPED: README.md: {command}, with what it needs: that is not here")
        else:
            verdict(done.returncode == 0, f"README.md: {command}: ends with {done.returncode} {took}",
                    done.stdout + done.stderr)
            print("  ...", *(done.stdout.splitlines() or ["nothing printed"])[-1:], flush=True)


def check_program(work, readme):
    """The program and the command line of the README; the clone is the folder `chorale`."""
    programs = [block for block in blocks(readme, "cpp") if "int main(" in block]
    lines = [line for block in blocks(readme, "sh") for line in block.splitlines() if line.startswith("g++ ")]
    if not verdict(len(programs) == 1 and len(lines) == 1, "README.md has one program and one line that compiles it"):
        return
    (work / "main.cpp").write_text(programs[0])
    built = run(*shlex.split(lines[0]), cwd=work)
    if not verdict(built.returncode == 0, f"README.md: its program compiles with {lines[0]}", built.stderr):
        return
    (work / "empty").mkdir()
    without = run(str(work / "a.out"), cwd=work / "empty")
    told = re.fullmatch(r"chorale: data/mnist: is not a folder\.\n +Try: the folder with MNIST's four files, which "
                        r"https://.*\n", without.stderr)
    verdict(without.returncode == 2 and told,
            f"README.md: without data its program says where they are, and ends with {without.returncode}",
            without.stderr)
    write_rows(work / "data/mnist")
    done = run(str(work / "a.out"), cwd=work)
    good = re.search(r"^loss [0-9.]+  accuracy [01]\.[0-9]+$", done.stdout, re.MULTILINE)
    verdict(done.returncode == 0 and good and (work / "lenet.safetensors").stat().st_size > 1_388_000,
            "README.md: its program trains, says what it says there, and saves", done.stdout + done.stderr)


def main():
    if not (ROOT / ".git").exists():
        print("SKIPPED: README.md in a fresh clone: this is no checkout of git")
        return 0
    readme = (ROOT / "README.md").read_text()
    work = pathlib.Path(tempfile.mkdtemp(prefix="chorale-", dir=os.environ.get("TEST_TMPDIR")))
    try:
        clone_to(work / "chorale")
        check_commands(work / "chorale", readme)
        check_program(work, readme)
        if os.environ.get("CHORALE_SLOW"):
            try:
                run_commands(work, readme)
            finally:
                run("bazel", "shutdown", cwd=work / "chorale", home=work)
        else:
            print("SKIPPED: README.md: its commands, run in order: it is slow. Try: tools/test --slow")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


sys.exit(main())
