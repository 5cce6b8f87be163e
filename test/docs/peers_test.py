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


def main(names):
    global failed
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    texts = {page: pathlib.Path(page).read_text() for page in names or NEEDS}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)                                       # blocks write files
        for page, text in texts.items():
            lacking = [package for package in NEEDS[page] if importlib.util.find_spec(package) is None]
            count = len(BLOCK.findall(text))
            if count < 20:
                failed += 1
                print(f"FAILED: {page} has {count} blocks of Python, and once had more than 20")
            if lacking:
                print(f"SKIPPED: {page}: {count} blocks of Python: there is no python package {', '.join(lacking)}")
            else:
                run(page, text)
        os.chdir("/")
    return 1 if failed else 0


sys.exit(main(sys.argv[1:]))
