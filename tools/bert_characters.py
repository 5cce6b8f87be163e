#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bert_characters.py: prints include/chorale/data/text/bert_characters.hpp, by asking the package tokenizers (PyPI)
about each character of Unicode: what its BertNormalizer makes of it, and whether its BertPreTokenizer cuts there."""
import importlib.metadata

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

COLUMNS = 120
HANGUL = range(0xAC00, 0xD7A4)                             # its syllables are computed
COMPATIBLE = {"compatible_ideographs": range(0xF900, 0xFADA), "more_compatible_ideographs": range(0x2F800, 0x2FA1E)}


def characters():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def ranges(codes):
    found = []
    for c in codes:
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def table(what, declaration, items):
    lines, line = [f"/// {what}", declaration], "   "
    for item in items:
        if len(line) + len(item) + 2 > COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(lines + [line, "}};"]) + "\n"


def of_ranges(what, name, codes):
    found = ranges(codes)
    return table(what, f"inline constexpr auto {name} = std::array<CodeRange, {len(found)}>{{{{",
                 [f"{{{first:#x}, {last:#x}}}" for first, last in found])


def runs(pairs):
    """[first, last, step, to]: characters a step apart, each of which becomes the one that is as far from it."""
    found = []
    for c, to in pairs:
        if found:
            first, last, step, begins = found[-1]
            if to - c == begins - first and (c - last == step or (first == last and c - last <= 2)):
                found[-1][1:3] = c, c - last
                continue
        found.append([c, c, 1, to])
    return found


def main():
    cleaned = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    folded = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=True)
    apart = BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    cut = BertPreTokenizer()
    removed = [c for c in characters() if cleaned.normalize_str(chr(c)) == ""]
    alone = [c for c in characters() if apart.normalize_str(chr(c)) != chr(c)]
    marks = [c for c in characters() if folded.normalize_str(chr(c)) == ""]
    punctuation = [c for c in characters() if len(cut.pre_tokenize_str("a" + chr(c) + "a")) == 3]
    become = {c: folded.normalize_str(chr(c)) for c in characters() if c not in HANGUL}
    become = {c: to for c, to in become.items() if to not in ("", chr(c))}
    several = {c: to for c, to in become.items() if len(to) > 1}
    assert max(len(to) for to in several.values()) == 3
    one = {c: ord(to) for c, to in become.items() if len(to) == 1}
    for block in COMPATIBLE.values():
        assert all(c not in several for c in block)
    found = runs((c, to) for c, to in one.items() if not any(c in block for block in COMPATIBLE.values()))
    print("// SPDX-License-Identifier: Apache-2.0\n//\n"
          "// Characters as BERT's tokenizer takes them, printed by tools/bert_characters.py, which asks the package\n"
          f"// tokenizers {importlib.metadata.version('tokenizers')}. Long, as it is a table.\n#pragma once\n// clang-format off\n\n"
          "#include <chorale/data/text/unicode_classes.hpp>\n\n#include <array>\n#include <cstdint>\n\n"
          "namespace chorale::data::detail {\n")
    print(of_ranges("Characters that are left out: control, format and private ones.", "bert_removed", removed))
    print(of_ranges("Characters that are words of their own: ideographs.", "bert_alone", alone))
    print(of_ranges("Characters that end words, and are words of their own.", "bert_punctuation", punctuation))
    print(of_ranges("Marks over and under letters, which are left out of a text without accents.", "bert_marks", marks))
    print("/// Characters from the first to the last, `step` apart, and what the first one becomes.\n"
          "struct FoldedRange {\n  std::uint32_t first, last, step, to;\n};\n")
    print(table("Letters in lower case and without accents.",
                f"inline constexpr auto bert_folded = std::array<FoldedRange, {len(found)}>{{{{",
                [f"{{{first:#x}, {last:#x}, {step}, {to:#x}}}" for first, last, step, to in found]))
    print("/// A character, and what it becomes: up to three, behind which are zeros.\n"
          "struct FoldedToSeveral {\n  std::uint32_t first;\n  std::array<std::uint32_t, 3> to;\n};\n")
    print(table("Characters that become several.",
                f"inline constexpr auto bert_folded_to_several = std::array<FoldedToSeveral, {len(several)}>{{{{",
                [f"{{{c:#x}, {{{', '.join(f'{ord(x):#x}' for x in to)}}}}}" for c, to in several.items()]))
    for name, block in COMPATIBLE.items():
        print(table(f"What ideographs from {block[0]:#x} on become; 0: they stay.",
                    f"inline constexpr auto bert_{name} = std::array<std::uint32_t, {len(block)}>{{{{",
                    [f"{one.get(c, 0):#x}" if c in one else "0" for c in block]))
    print("}  // namespace chorale::data::detail")


if __name__ == "__main__":
    main()
