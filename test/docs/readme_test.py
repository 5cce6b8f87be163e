#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does what README.md says, in a fresh clone of this checkout: its commands, its program, and its command line.

The clone has what is committed, and what is changed and not yet committed. Nothing is installed, no network is used.
The program is compiled with the README's own line, without data and with a few drawn rows in MNIST's format. Commands
that train are not run again: the smoke test of their example is named, and must exist. The Bazel snippet is built by
//test/consumer, out of the README.
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


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, env=ENV | {"HOME": str(cwd)}, capture_output=True, text=True, check=False)


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


def check_commands(clone, readme):
    """Each line of the README's blocks of commands."""
    helped = run("tools/run", "--help", cwd=clone)
    verdict(helped.returncode == 0, "tools/run --help", helped.stderr)
    tools = {"tools/run": helped.stdout}
    for tool in ("tools/test", "tools/launch"):
        done = run(tool, "--help", cwd=clone)
        verdict(done.returncode == 0, f"{tool} --help", done.stderr)
        tools[tool] = done.stdout
    smoke = (clone / "examples/BUILD").read_text()
    count = 0
    for line in "".join(blocks(readme, "sh")).splitlines():
        command = line.partition("#")[0].strip()
        if not command.startswith("tools/"):
            continue
        count += 1
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
        if not verdict(known and source.is_file() and name in helped.stdout and f'"{name}"' in smoke,
                       f"README.md: {command}: its tool, its flags and its example are there, with a smoke test"):
            continue
        by = "this is a part of it" if words[0] == "tools/test" else f"//examples:{name}_smoke_test trains with it"
        print(f"SKIPPED: README.md: {command}: {by}")
    verdict(count >= 15, f"README.md has {count} commands")


def write_rows(folder):
    """128 and 32 rows in the four files of MNIST: a stroke whose column is the digit."""
    folder.mkdir(parents=True)
    for name, rows in (("train", 128), ("t10k", 32)):
        labels = bytes(r % 10 for r in range(rows))
        pixels = b"".join(28 * bytes(255 if x // 2 == label + 2 else 0 for x in range(28)) for label in labels)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, rows, 28, 28) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, rows) + labels)


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
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


sys.exit(main())
