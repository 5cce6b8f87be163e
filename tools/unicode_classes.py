#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unicode_classes.py: prints include/chorale/data/text/unicode_classes.hpp, from the Unicode data of this Python."""
import sys
import unicodedata

COLUMNS = 120


def ranges(kind):
    """[first, last] of the code points whose category begins with this letter."""
    found = []
    for c in range(sys.maxunicode + 1):
        if unicodedata.category(chr(c))[0] != kind:
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def table(name, what, kind):
    all_ = ranges(kind)
    lines = [f"/// {what}", f"inline constexpr auto {name} = std::array<CodeRange, {len(all_)}>{{{{"]
    line = "   "
    for first, last in all_:
        item = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > COLUMNS:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join([*lines, line, "}};"])


print(f"""// SPDX-License-Identifier: Apache-2.0
//
// Classes of Unicode {unicodedata.unidata_version}, printed by tools/unicode_classes.py.
#pragma once
// clang-format off

#include <algorithm>
#include <array>
#include <cstdint>

namespace chorale::data::detail {{

/// Code points from the first to the last.
struct CodeRange {{
  std::uint32_t first, last;
}};

{table("unicode_letters", "Letters: categories Lu, Ll, Lt, Lm and Lo, in ascending order.", "L")}

{table("unicode_numbers", "Numbers: categories Nd, Nl and No, in ascending order.", "N")}

template <class Table>
constexpr bool contains(Table const& table, std::uint32_t c) {{
  auto const after = std::upper_bound(table.begin(), table.end(), c,
                                      [](std::uint32_t x, CodeRange const& range) {{ return x < range.first; }});
  return after != table.begin() && c <= (after - 1)->last;
}}

}}  // namespace chorale::data::detail""")
