#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/22-one-batch.md against the headers: each hop's file has a function of that name and contains the call that the
page says goes on from there. And the files that docs/00-tour.md lists for `fit`: there, and no longer than it says."""
import pathlib
import re
import sys

rows = re.findall(r'^\| (\d+) \| `([^`]+)` \| `([^`]+)` \| [^|]+ \| `([^`]+)` \|$',
                  pathlib.Path('docs/22-one-batch.md').read_text(), re.M)
failed = 0


def check(good, what):
    global failed
    failed += not good
    print(('PASSED: ' if good else 'FAILED: ') + what)


check([int(row[0]) for row in rows] == list(range(1, len(rows) + 1)) and len(rows) > 20,
      f'the page has {len(rows)} hops, numbered from 1')
for hop, file, function, call in rows:
    header = pathlib.Path('include/chorale') / file
    code = re.sub(r'//[^\n]*', '', header.read_text()) if header.is_file() else ''
    defined = re.search(rf'^[ \w:<>,&*\[\]]*\b{function}\([^;]*?\)[^;]*?\{{', code, re.M)
    check(defined is not None and call in code, f'hop {hop}: {file} has {function}(), and {call}')
files = re.findall(r'^\| `([^`]+\.hpp)` \| (\d+) \|', pathlib.Path('docs/00-tour.md').read_text(), re.M)
check(5 < len(files) <= 9, f'docs/00-tour.md lists {len(files)} files to read to understand fit, at most 9')
for file, most in files:
    header = pathlib.Path('include/chorale') / file
    lines = len(header.read_text().split('\n')) - 1 if header.is_file() else 0
    check(0 < lines <= int(most), f'{file} has {lines} lines, at most {most}')
sys.exit(failed != 0)
