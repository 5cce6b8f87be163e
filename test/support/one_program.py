# SPDX-License-Identifier: Apache-2.0
"""Many programs as one, so that a compiler reads what they share once; and which of them each error is about."""
import re

ERROR = re.compile(r"^\S+: (?:fatal )?error: (.*)$")
# Lines with which g++ says, before an error, how it came there.
CONTEXT = re.compile(r"In file included from |^\s+from |: In |\.\.\.|"
                     r": {3}(?:recursively )?(?:required|in .constexpr. expansion)")

INCLUDED = re.compile(r"In file included from |^\s+from ")

# With these an error says all of its way, and quotes no source.
WHOLE_WAY = {"g++": ["-ftemplate-backtrace-limit=0", "-fno-diagnostics-show-caret"],
             "clang++": ["-ferror-limit=0", "-ftemplate-backtrace-limit=0", "-fno-caret-diagnostics"]}


def as_one_program(cases, folder):
    """Each in a namespace, main() as well, below one of its file; what they include is there before the first begins,
    chorale.hpp first, since g++ takes a precompiled header once and before all else. The text of each lies in a file of
    `folder`, on lines of the same numbers."""
    def without_includes(lines):
        return "\n".join("" if line.startswith("#include") else line for line in lines) + "\n"

    folder.mkdir(exist_ok=True)
    includes, blocks = set(), {}
    for case in cases:
        includes.update(case.includes)
        blocks.setdefault(case.file, []).append(case)
    text = "".join(line + "\n" for line in sorted(includes, key=lambda line: ("chorale/chorale.hpp" not in line, line)))
    for file, ones in blocks.items():
        head = folder / f"{ones[0].namespace_of_file}_head.hpp"
        head.write_text(without_includes(ones[0].lines[:ones[0].head]))
        text += f'namespace {ones[0].namespace_of_file} {{\n#include "{head.absolute()}"\n'
        for case in ones:
            case.part(folder).write_text("\n" * case.begin + without_includes(case.section()))
            text += f'namespace {case.namespace} {{\n#include "{case.part(folder)}"\n}}\n'
        text += "}\n"
    return text


def errors_with_places(output, compiler, place):
    """[(message, {places})] of what a compiler wrote with WHOLE_WAY. The places are what the group of `place` matched in
    the error and on the way to it. clang++ prints the way after an error; g++ before it, and not again when the next
    error has the same."""
    lines = output.splitlines()
    at = [i for i, line in enumerate(lines) if ERROR.match(line)]
    found, way = [], set()
    for n, i in enumerate(at):
        if compiler == "clang++":
            block = lines[i:at[n + 1] if n + 1 < len(at) else len(lines)]
            way = {match for line in block if not INCLUDED.search(line) for match in place.findall(line)}
        else:
            begin = i
            while begin > 0 and CONTEXT.search(lines[begin - 1]):
                begin -= 1
            block = [line for line in lines[begin:i + 1] if not INCLUDED.search(line)]
            way = {match for line in block for match in place.findall(line)} or way
        found.append((ERROR.match(lines[i])[1], set(way)))
    return found
