#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The records of PJRT's C interface that the library declares, against pjrt_c_api.h where that is installed.

The header is looked for in the folder of includes CHORALE_PJRT_INCLUDE, or in Python's package tensorflow. Each member
of each record has the offset and size that it has there, each function its place in the table. A record may be longer
than the header's when that is of an older version; CHORALE_PYTHON names another Python to look in."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

NAME = "records of PJRT's C interface are those of pjrt_c_api.h"
OURS = "include/chorale/pjrt/device"
RECORDS = {"NamedValue": "PJRT_NamedValue", "KeyValueGet": "PJRT_KeyValueGetCallback_Args",
           "KeyValueTryGet": "PJRT_KeyValueTryGetCallback_Args", "KeyValuePut": "PJRT_KeyValuePutCallback_Args",
           "Program": "PJRT_Program", "Layout": "PJRT_Buffer_MemoryLayout", "ExecuteOptions": "PJRT_ExecuteOptions",
           "Layout::Tiled": "PJRT_Buffer_MemoryLayout_Tiled"}
FORMS = ["About", "TextOf", "ValueOf", "ListOf"]
VALUES = {"ElementType": ("PJRT_Buffer_Type_", ["PRED", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16",
                                               "F32", "F64", "BF16"])}


def include_folder():
    given = os.environ.get("CHORALE_PJRT_INCLUDE")
    if given:
        return pathlib.Path(given)
    where = "import importlib.util as i; s = i.find_spec('tensorflow'); print(s.origin if s else '')"
    python = os.environ.get("CHORALE_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", where], capture_output=True, text=True, check=False).stdout.strip()
    folder = pathlib.Path(found).parent / "include" if found else None
    return folder if folder and (folder / "xla/pjrt/c/pjrt_c_api.h").exists() else None


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def body_of(text, start):
    """What is between the braces that follow."""
    begin = text.index("{", start)
    depth, at = 1, begin + 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[begin + 1:at - 1]


def members(body):
    """Names of members, in order: of a union without a name that of its first, of a function pointer its own."""
    body = re.sub(r"\b(struct|enum|union) \w+( : \w+)?\s*\{.*?\};", "", body, flags=re.DOTALL)      # definitions
    body = re.sub(r"union\s*\{([^;]*;)[^}]*\};", r"\1", body)
    names = []
    for statement in body.split(";"):
        statement = statement.strip()
        if not statement or statement.startswith("static"):
            continue
        pointer = re.search(r"\(\*\s*(\w+)\)\s*\(", statement)
        plain = re.search(r"(\w+)\s*(\{.*\})?$", statement.split("=")[0].strip(), re.DOTALL)
        names.append((pointer or plain).group(1))
    return names


def main():
    folder = include_folder()
    if not folder:
        print(f"SKIPPED: {NAME}: no tensorflow in Python, and CHORALE_PJRT_INCLUDE names no folder")
        return
    header = without_comments((folder / "xla/pjrt/c/pjrt_c_api.h").read_text())
    ours = without_comments("".join(pathlib.Path(OURS, file).read_text() for file in ("api.hpp", "api_programs.hpp")))

    def of(struct):
        return members(body_of(header, re.search(rf"\bstruct {struct} \{{", header).start()))

    pairs = []                                                   # our record, its members, the header's struct
    for alias, form, _, call in re.findall(r"using (\w+)\s*=\s*(\w+)<(\d+), \"(PJRT_\w+)\"", ours):
        assert form in FORMS, form
        at = re.search(rf"struct {form} \{{", ours).start()
        pairs.append((alias, members(body_of(ours, at)), call + "_Args", call))
    for found in re.finditer(r"struct (\w+) \{", ours):
        body = body_of(ours, found.start())
        call = re.search(r"static constexpr Call call\{\d+, \d+, \"(PJRT_\w+)\"\}", body)
        if call:
            pairs.append((found[1], members(body), call[1] + "_Args", call[1]))
    assert len(pairs) == len(re.findall(r', "PJRT_', ours)), "a record that this script does not see"
    for record, struct in RECORDS.items():
        at = re.search(rf"struct {record.split('::')[-1]} \{{", ours).start()
        pairs.append((record, members(body_of(ours, at)), struct, None))

    lines = ["#include <chorale/pjrt/device/api_programs.hpp>", "#include <chorale/pjrt/device/shape.hpp>",
             '#include "xla/pjrt/c/pjrt_c_api.h"', "#include <cstddef>", "namespace api = chorale::pjrt::api;"]
    checks = 0

    def check(condition, text):
        nonlocal checks
        checks += 1
        lines.append(f'static_assert({condition}, "{text}");')

    for record, names, struct, call in pairs:
        there = of(struct)
        if len(names) < len(there):
            lines.append(f'static_assert(false, "{record} has {len(names)} members, and {struct} {len(there)}");')
        for mine, other in zip(names, there):
            check(f"offsetof(api::{record}, {mine}) == offsetof({struct}, {other}) && "
                  f"sizeof(api::{record}::{mine}) == sizeof({struct}::{other})", f"{record}::{mine}")
        if call:
            same = "==" if len(names) == len(there) else ">"
            check(f"api::{record}::call.bytes {same} {struct}_STRUCT_SIZE", f"size of {record}")
            check(f"sizeof(api::Table) + api::{record}::call.slot * sizeof(void*) == offsetof(PJRT_Api, {call})",
                  f"place of {call}")
    for kind, (prefix, names) in VALUES.items():
        for i, name in enumerate(names, 1):
            check(f"static_cast<int>(chorale::pjrt::{kind}::{name.lower()}) == {prefix}{name}", name)
    for i, name in enumerate(["kString", "kInt64", "kInt64List", "kFloat", "kBool"]):
        check(f"{i} == PJRT_NamedValue_{name}", name)
    check("sizeof(api::Table) == offsetof(PJRT_Api, PJRT_Error_Destroy)", "Table")
    check("offsetof(api::Table, minor) == offsetof(PJRT_Api, pjrt_api_version.minor_version)", "minor")
    check("static_cast<int>(api::HostSemantics::until_transfer_completes) == "
          "PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes", "HostSemantics")

    with tempfile.TemporaryDirectory() as work:
        file = pathlib.Path(work, "c_header.cpp")
        file.write_text("\n".join(lines) + "\n")
        compiler = shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            print(f"SKIPPED: {NAME}: no compiler")
            return
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", "-I", "include", "-I",
                               str(folder), str(file)], capture_output=True, text=True, check=False)
    print(f"{'FAILED' if done.returncode else 'PASSED'}: {NAME} ({len(pairs)} records, {checks} checks)")
    if done.returncode:
        sys.exit("\n".join(line for line in done.stderr.splitlines() if "error" in line))


main()
