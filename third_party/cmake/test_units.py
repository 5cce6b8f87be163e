#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_units.py OUT: the Catch2 tests of test/*/BUILD for CMake, a line for each: name;optimisation;source;exclusive.

A BUILD file has the form of Python: it is run with functions that note what chorale_tests() and chorale_test() are
asked for, so that both build systems compile the same files together. A unit of several files is written to OUT.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What needs more than the library and its images: MPI, libtorch, CUDA, or pages that Bazel takes apart.
LEFT_OUT = {"cuda", "libtorch", "mpi", "docs"}


class Folder:
    """A folder of test/, while its BUILD file runs."""

    def __init__(self, path, out):
        self.path, self.out, self.units, self.written = path, out, [], {}

    def glob(self, patterns, exclude=(), **_):
        found = {str(file.relative_to(self.path)) for pattern in patterns for file in self.path.glob(pattern)}
        return sorted(found - set(exclude))

    def genrule(self, name, outs=(), cmd="", **_):
        self.written[outs[0] if outs else name] = cmd

    def test(self, name, srcs, optimise="-O1", tags=(), **_):
        source = next(file for file in srcs if file.endswith(".cpp"))
        if source in self.written:                                         # by printf or echo, of //test/compose
            unit = self.out / f"{self.path.name}_{source}"
            text = self.written[source].replace("\\n", "\n").replace("printf '", "").replace("(", "", 1)
            unit.write_text(text.replace("'; ", "").split("')")[0] + "\n")
            source = unit
        self.add(name, optimise, source, tags)

    def tests(self, together=None, differently=None, optimise="-O1", tags=(), **_):
        files = {pathlib.Path(file).stem: file for file in self.glob(["**/*_test.cpp"])}
        units = {}
        for name, parts in (together or {}).items():
            unit = self.out / f"{self.path.name}_{name}.cpp"
            sources = [files.pop(part + "_test") for part in parts]
            unit.write_text("".join(f'#include "test/{self.path.name}/{source}"\n' for source in sources))
            units[name] = unit
        for name, source in {**files, **units}.items():
            own = (differently or {}).get(name, {})
            self.add(name, own.get("optimise", optimise), source, own.get("tags", tags))

    def add(self, name, optimise, source, tags):
        path = source if isinstance(source, pathlib.Path) else self.path / source
        self.units.append(f"{self.path.name}.{name};{optimise};{path};{'exclusive' in tags}")


def units_of(build, out):
    folder = Folder(build.parent, out)
    names = {"load", "package", "cc_binary", "cc_library", "cc_test", "sh_test", "filegroup", "exports_files"}
    known = {name: lambda *_, **__: None for name in names}
    known |= {"chorale_test": folder.test, "chorale_tests": folder.tests, "genrule": folder.genrule,
              "glob": folder.glob, "COPTS": []}
    exec(compile(build.read_text(), str(build), "exec"), known)            # pylint: disable=exec-used
    return folder.units


def main(out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for build in sorted(ROOT.glob("test/*/BUILD")):
        if build.parent.name not in LEFT_OUT and '"chorale_test' in build.read_text().split("\n\n")[0]:
            print("\n".join(units_of(build, out)))


main(*sys.argv[1:])
