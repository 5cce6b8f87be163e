#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header includes what it names, itself or through others, as far as a text shows: each name of the standard
library, which the compiler is asked about, and each name of ours that only one header defines. With --slow,
headers_test.py compiles each header alone as well."""
import collections
import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import sys

sys.path.append("tools")
from compiled import INCLUDE, code_of, end_of, without_brackets, without_template

TEXTS = {str(path.relative_to("include")): path.read_text() for path in pathlib.Path("include/chorale").rglob("*.hpp")}
CODE = {name: code_of(text) for name, text in TEXTS.items()}
INCLUDES = {name: INCLUDE.findall(text) for name, text in TEXTS.items()}
NOT_ASKED = re.compile(r"nccl|cuda|cublas|cudnn|nvrtc|torch|^chorale|[.]h$")         # not installed, or of C
STD = re.compile(r"\bstd::((?:ranges::|chrono::|filesystem::|this_thread::)?[a-z]\w*)")
NO_NAMES = {"chrono_literals", "regex_constants", "numbers", "ranges", "FILE", "data"}     # namespaces, and C's
TYPE = re.compile(r"\s*(?:class|struct|union|enum(?:\s+class|\s+struct)?)\s+(?:@\s*)?(\w+)")
# What a header introduces anywhere: types, parameters, members, variables, enumerators.
INTRODUCED = re.compile(r"\b(?:class|struct|union|enum|using|concept|typename|namespace|int|bool|size_t)\s+(\w+)|"
                        r"[<,]\s*[\w:]+\s+(\w+)\s*(?=[,>=])|(?<=[\w>&*\]])\s+[&*]*(\w+)\s*[({=;,)]|\b(\w+)\s*=(?!=)|[{,]\s*(\w+)\s*(?=[,}])")


@functools.cache
def brought_by(name):
    """All headers of ours that come with this one, and itself."""
    found, new = set(), [name]
    while new:
        header = new.pop()
        if header in TEXTS and header not in found:
            found.add(header)
            new += INCLUDES[header]
    return found


def declared_by(header, names):
    """Those of these names of the standard library that a header declares, as the compiler says."""
    lines = [f"#include <cstdint>\n#include <cstdio>\n#include <{header}>\n"]
    lines += [f"namespace n{i} {{ using std::{name}; }}\n" for i, name in enumerate(names)]
    run = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-fmax-errors=0", "-march=x86-64-v3", "-x", "c++", "-"],
                         input="".join(lines), capture_output=True, text=True, check=False,
                         env={**os.environ, "LC_ALL": "C"})
    wrong = {int(number) - 4 for number in re.findall(r"^<stdin>:(\d+):\d+: error", run.stderr, re.MULTILINE)}
    return {name for i, name in enumerate(names) if i not in wrong}


def defined_in(code):
    """What a header defines in namespaces: types, concepts, aliases, functions and constants."""
    code = code.replace("decltype(auto)", "decltype_auto_")
    found, i, start = set(), 0, 0
    while i < len(code):
        if code[i] in "([":
            i = end_of(code, i)
        elif code[i] in ";{":
            flat = without_brackets(without_template(code[start:i])[0]) if code[start:i].strip() else ""
            is_type = TYPE.match(flat) and not re.match(r"\s*(class|struct|union|enum)[^=@]*@", flat)
            if code[i] == "{" and re.match(r"\s*(inline\s+)?namespace\b", flat):
                start = i + 1
            else:
                before = flat.split("=")[0]
                if is_type:
                    name = TYPE.match(flat)[1] if code[i] == "{" else None
                elif other := re.match(r"\s*(?:concept|using)\s+(\w+)", flat):
                    name = other[1]
                elif "@" in before or re.search(r"\b(constexpr|inline|extern)\b", flat):
                    last = re.search(r"([A-Za-z_]\w*)\s*(?:<[^=]*>)?\s*$", before.split("@")[0])
                    name = last and last[1]
                else:
                    name = None
                found.add(name)
                if code[i] == "{":
                    i = end_of(code, i)
                    after = re.compile(r"\s*;").match(code, i + 1)
                    i = after.end() - 1 if after else i
                start = i + 1
        elif code[i] == "}":
            start = i + 1
        i += 1
    return found - {None}


def lacking_std():
    uses = {name: {one for one in STD.findall(code) if one not in NO_NAMES} for name, code in CODE.items()}
    names = sorted(set().union(*uses.values()))
    headers = sorted({header for all_of in INCLUDES.values() for header in all_of if not NOT_ASKED.search(header)})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        declares = dict(zip(headers, pool.map(lambda header: declared_by(header, names), headers)))
    for name in sorted(TEXTS):
        included = {header for one in brought_by(name) for header in INCLUDES[one]}
        missing = uses[name] - set().union(*(declares.get(header, set()) for header in included))
        yield from (f"{name}: std::{one}" for one in sorted(missing))


def lacking_ours():
    places, introduced = collections.defaultdict(set), collections.defaultdict(set)
    for name, code in CODE.items():
        for one in defined_in(code):
            places[one].add(name)
        for one in (word for words in INTRODUCED.findall(code) for word in words if word):
            introduced[one].add(name)
    known = {one: next(iter(where)) for one, where in places.items()
             if len(where) == 1 and introduced[one] <= where and not hasattr(__builtins__, one)}
    members = set(re.findall(r"(?:\.|->)\s*(\w+)", "\n".join(CODE.values())))
    for name, code in sorted(CODE.items()):
        for match in re.finditer(r"(?<!std::)\b[A-Za-z_]\w*", code):
            one = match[0]
            if one in known and known[one] not in brought_by(name) and not (one[0].islower() and one in members):
                yield f"{name}: {one}, which {known[one]} has"


failed = False
for what, lacking in (("the standard library", sorted(set(lacking_std()))), ("ours", sorted(set(lacking_ours())))):
    print("".join(f"{line}\n" for line in lacking) + ("FAILED" if lacking else "PASSED") +
          f": {len(TEXTS)} headers include what they name of {what}")
    failed |= bool(lacking)
sys.exit(failed)
