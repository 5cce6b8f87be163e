#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-format changes no source file. To format all of them:

    git ls-files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.h' '*.c' | xargs clang-format-19 -i
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path("WORKSPACE").resolve().parent
NAME = "clang-format changes no source file"
tool = shutil.which("clang-format-19")
if tool is None:
    print(f"SKIPPED: {NAME} (no clang-format-19 here; Debian's package has that name)")
    sys.exit(0)

files = sorted(str(path) for folder in ("include", "test", "examples", "bench", "tools")
               for kind in ("*.hpp", "*.cpp", "*.cuh", "*.cu", "*.h", "*.c") for path in (ROOT / folder).rglob(kind))
if len(files) < 1250:
    sys.exit(f"FAILED: {NAME}: the test sees {len(files)} files")


def differing(some):
    done = subprocess.run([tool, "--dry-run", *some], capture_output=True, text=True, check=True)
    return {line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line}


with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = sorted(set().union(*pool.map(differing, (files[i:i + 60] for i in range(0, len(files), 60)))))
for path in found:
    print(f"  {os.path.relpath(path, ROOT)}. Try: clang-format-19 -i")
print(f"{'FAILED' if found else 'PASSED'}: {NAME}")
sys.exit(bool(found))
