#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compiled form of the library, as tools/compiled.py makes it: all that a program includes compiles without a
warning, a program has one form, and README's is not larger than it was; with --slow, a program over the compiled library
prints what it prints over headers, and has no part that it does not use."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WORK = pathlib.Path(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp()) / "compiled"
FLAGS = ["-std=c++20", "-march=x86-64-v3", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Wpedantic",
         "-Wshadow", "-Wconversion", "-Wno-missing-field-initializers", "-Wno-unknown-warning-option", "-Wno-restrict",
         "-Werror"]
LIBRARIES = ["-ldnnl", "-lgomp", "-lz", "-lcrypto", "-lpthread", "-ldl"]
PROGRAM = pathlib.Path("test/packages/main.cpp")
APART = ["-O2", "-ffunction-sections", "-fdata-sections"]                   # so that a linker leaves out what is not used
UNUSED = re.compile(r"chorale::(parameter_server|tcp|shared_memory|simulated|stablehlo|coordinator|tfrecord)::|"
                    r"chorale::(Tcp|SharedMemory|Coordinator|Pipeline|Sharded|Gossip|LocalSgd|Adam|TensorBoard)")
RECORDED_BY = "14"
RECORDED = {"headers": (16_709, 2_434_224), "library": (9_408, 1_194_995)}  # functions, bytes
failed = False


def report(good, what, said=""):
    global failed
    failed |= not good
    print(("" if good else said[:4000] + "\n") + f"{'PASSED' if good else 'FAILED'}: {what}")


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def compiled(source, *flags):
    return run("g++", *FLAGS, source, *flags)


made = run(sys.executable, "tools/compiled.py", "include", WORK)
number = int((re.match(r"\d+", made.stdout) or ["0"])[0])
report(made.returncode == 0 and number > 1500, f"{number} functions are compiled once", made.stderr)


def times():
    return {path: path.stat().st_mtime_ns for path in WORK.rglob("*.*")}


before = times()
run(sys.executable, "tools/compiled.py", "include", WORK)
report(before == times(), "what has not changed is not written again")

# Objects of both forms in one program: the linker's sentence. Headers of one with the macro of the other: the compiler's.
OWN = WORK / "own"                                                          # this test's programs
OWN.mkdir(exist_ok=True)
for name in ("one", "two"):
    (OWN / f"{name}.cpp").write_text(f"#include <chorale/config.hpp>\nint {name}() {{ return 0; }}\n")
(OWN / "main.cpp").write_text("int one();\nint two();\nint main() { return one() + two(); }\n")
headers, library = ["-Iinclude"], [f"-I{WORK}/include", "-DCHORALE_COMPILED"]
for compiler in filter(shutil.which, ("g++", "clang++")):
    for first, second in ((headers, headers), (library, library), (headers, library), (library, headers)):
        objects = [OWN / "one.o", OWN / "two.o"]
        for flags, made in zip((first, second), objects):
            run(compiler, "-std=c++20", *flags, "-c", made.with_suffix(".cpp"), "-o", made)
        done = run(compiler, "-std=c++20", OWN / "main.cpp", *objects, "-o", OWN / "main")
        refused = "chorale_over_headers_and_chorale_compiled_in_one_program_take_one_of_them: TLS" in done.stderr
        one_form = first == second
        report((done.returncode == 0) == one_form and refused != one_form,
               f"{compiler}: objects of {'one form link' if one_form else 'two forms do not link'}", done.stderr)
    for flags, says in ((library[:1], "Link with chorale::compiled"),
                        (headers + library[1:], "Name chorale::compiled first")):
        done = run(compiler, "-std=c++20", *flags, "-fsyntax-only", OWN / "one.cpp")
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        report(bool(errors) and says in errors[0], f"{compiler} says: {says}", done.stderr)

everything = OWN / "everything.cpp"
everything.write_text("".join(f"#include <chorale/{face}.hpp>\n" for face in (
    "processes", "parallel", "solver", "advice", "text")))
seen = compiled(everything, *library, "-fsyntax-only")
report(seen.returncode == 0, "its headers compile without a warning", seen.stderr)

# What README's program makes of the library: functions, and bytes of code and constants, by clang at -O0.
readme = OWN / "readme.cpp"
readme.write_text(re.search(r"^```cpp\n(.*?)^```$", pathlib.Path("README.md").read_text(), re.DOTALL | re.MULTILINE)[1])
version = re.search(r"clang version (\d+)", run("clang++", "--version").stdout if shutil.which("clang++") else "")
if version and version[1] == RECORDED_BY:
    for form, flags in {"headers": headers, "library": library}.items():
        made = readme.with_suffix(".o")
        done = run("clang++", *FLAGS, *flags, "-O0", "-c", readme, "-o", made)
        symbols = run("nm", "--defined-only", made).stdout
        functions = len(re.findall(r" [TtW] ", symbols))
        size = int(run("size", made).stdout.splitlines()[1].split()[0]) if done.returncode == 0 else 0
        for what, number, recorded in zip(("functions", "bytes"), (functions, size), RECORDED[form]):
            report(0 < number <= 1.1 * recorded, f"README's program over the {form} has {number} {what}, at most a tenth "
                                                 f"more than {recorded}", done.stderr)
else:
    print(f"SKIPPED: functions and bytes of README's program: they are recorded for clang {RECORDED_BY}")

if not os.environ.get("CHORALE_SLOW"):
    print("SKIPPED: a program over the compiled library prints what it prints over headers: this takes minutes: "
          "tools/test --slow")
    sys.exit(failed)

parts = sorted(WORK.glob("*.cpp"))
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    jobs = pool.map(lambda part: compiled(part, f"-I{WORK}/bodies", *library, *APART, "-c", "-o", part.with_suffix(".o")), parts)
    for part, done in zip(parts, jobs):
        report(done.returncode == 0, f"the part {part.stem} compiles without a warning", done.stderr)
archive = WORK / "libchorale.a"
run("ar", "rcs", archive, *[part.with_suffix(".o") for part in parts])
printed = {}
for form, flags in {"headers": headers, "library": library}.items():
    program = WORK / form
    done = compiled(PROGRAM, *flags, *APART, "-o", program, *([archive] if form == "library" else []), *LIBRARIES,
                    "-Wl,--gc-sections")
    report(done.returncode == 0, f"a program over the {form} is built", done.stderr)
    printed[form] = run(program).stdout if done.returncode == 0 else form
    names = run("nm", "-C", "--defined-only", program).stdout.splitlines()
    ours, unused = [name for name in names if "chorale::" in name], [name for name in names if UNUSED.search(name)]
    report(len(ours) > 50 and not unused, f"of {len(ours)} symbols over the {form} none is of what the program does not use",
           "\n".join(unused[:20]))
report(printed["headers"] == printed["library"] != "", "both print the same", "\n".join(printed.values()))
sys.exit(failed)
