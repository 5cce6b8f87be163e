# SPDX-License-Identifier: Apache-2.0
"""Many programs as one, so that a compiler reads what they share once."""


def as_one_program(files):
    """Each in a namespace of its own, main() as well; what they include is there before the first begins."""
    includes = sorted({line for file in files for line in file.read_text().splitlines() if line.startswith("#include")})
    return "\n".join(includes) + "\n" + "".join(
        f'namespace {file.stem} {{\n#include "{file.absolute()}"\n}}\n' for file in files)
