#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""join.py FILE...: prints benchmarks as one program, which is the one that CHORALE_BENCH names.

A compiler reads what they share once, and makes code of it once. Each is in a namespace of its own, main() as well.
A process that a benchmark starts inherits CHORALE_BENCH.
"""
import pathlib
import sys

files = [pathlib.Path(name) for name in sys.argv[1:]]
includes = sorted({line for file in files for line in file.read_text().splitlines() if line.startswith("#include")})
print("\n".join([*includes, "#include <cstdlib>", "#include <string_view>"]))
for file in files:
    print(f'namespace {file.stem} {{\n#include "{file}"\n}}')
print("int main(int argc, char** argv) {\n  auto const* const asked = std::getenv(\"CHORALE_BENCH\");\n"
      "  auto const name = std::string_view{asked != nullptr ? asked : \"\"};")
for file in files:
    print(f'  if (name == "{file.stem}") return {file.stem}::main(argc, argv);')
print("  return 2;\n}")
