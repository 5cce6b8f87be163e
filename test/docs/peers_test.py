#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers_test.py [PAGE..]: runs every block of Python in docs/05-from-keras.md and docs/06-from-pytorch.md.

A block follows the beginning of its page. Without the packages of a page its blocks are skipped, by name.
"""
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

BLOCK = re.compile(r"^<!-- (?P<name>[^\n]+?) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"docs/05-from-keras.md": ["keras", "tensorflow", "numpy"],
         "docs/06-from-pytorch.md": ["torch", "numpy", "safetensors", "tensorboard"]}
failed = 0


def run(page, text):
    """Runs the blocks of a page, each with the names that the beginning gives."""
    global failed
    beginning = ""
    for i, found in enumerate(BLOCK.finditer(text)):
        title, code = found["name"], found["code"]
        name = f"{page}: {title}"
        if title.endswith("(beginning)"):
            beginning = code
        else:
            code = beginning + "\n" + code
        file = pathlib.Path(f"{pathlib.Path(page).stem}_{i}.py")       # tf.function reads the source
        file.write_text(code)
        program = compile(code, str(file.resolve()), "exec")
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exec(program, {"__name__": "__main__"})
            print(f"PASSED: {name}")
        except Exception:
            failed += 1
            print(said.getvalue()[-2000:])
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED: {name}")


def run_page(page):
    global failed
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    text = pathlib.Path(page).read_text()
    lacking = [package for package in NEEDS[page] if importlib.util.find_spec(package) is None]
    count = len(BLOCK.findall(text))
    if count < 20:
        failed += 1
        print(f"FAILED: {page} has {count} blocks of Python, and once had more than 20")
    if lacking:
        print(f"SKIPPED: {page}: {count} blocks of Python: there is no python package {', '.join(lacking)}")
        return 1 if failed else 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)                                       # blocks write files
        run(page, text)
        os.chdir("/")
    return 1 if failed else 0


def main(names):
    if len(names) == 1:
        return run_page(names[0])
    codes = {page: subprocess.run([sys.executable, __file__, page], check=False).returncode for page in names or NEEDS}
    for page, code in codes.items():                           # TensorFlow and PyTorch do not share a process
        if code not in (0, 1):
            print(f"FAILED: {page} ends with {code}")
    return 1 if any(codes.values()) else 0


sys.exit(main(sys.argv[1:]))
