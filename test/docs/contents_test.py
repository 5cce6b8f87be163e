#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""include/chorale/fwd.hpp against the headers: each type that it declares is defined in the header beside it."""
import pathlib
import re
import sys

ROOT = pathlib.Path('include/chorale')
failed, seen, header = 0, set(), ''
for line in (ROOT / 'fwd.hpp').read_text().splitlines():
    named = re.search(r'// ([\w/]+\.hpp)$', line)
    header = named.group(1) if named else header
    declared = re.match(r'(?:template <.*> )?(?:class|struct) (\w+);', line)
    if not declared:
        continue
    name = declared.group(1)
    file = ROOT / header
    code = file.read_text() if file.is_file() else ''
    good = re.search(rf'^(?:template <.*> )?(?:class|struct) {name}\b[^;]*[{{;]', code, re.M) and (header, name) not in seen
    seen.add((header, name))
    failed += not good
    if not good:
        print(f'FAILED: fwd.hpp declares {name}, which {header or "no header"} lacks, or declares it twice')
if len(seen) < 70:
    failed += 1
    print(f'FAILED: fwd.hpp declares {len(seen)} types, and once declared more than 70')
if not failed:
    print(f'PASSED: fwd.hpp declares {len(seen)} types, each defined in the header that it names')
sys.exit(failed != 0)
