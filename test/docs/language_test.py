#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How comments and pages speak: a docstring is readable alone, states and does not ask, and names things by the words of
docs/10-words.md. Each public class has a docstring."""
import pathlib
import re
import sys

# Words that the glossary has replaced.
OLD = re.compile(r'\b(mishaps?|partings?|conference|shakings?|anew|in vain|last words|takes? leave)\b')
# Words that make a comment hard to read: a noun, 'not a', 'own', 'continues' or 'after' says the same.
OBLIQUE = re.compile(r"\b(those of|that of|those that|of which|is no|are no|of its own|of one's own|goes on|as of|behind)\b",
                     re.IGNORECASE)
AT_MOST = 50
BEGINS = re.compile(r'(The same|Of|As)\b')
ENTITY = re.compile(r'^(?:template <.*> )?(?:class|struct|concept|enum class) (\w+)')
headers = sorted(pathlib.Path('include').rglob('*.hpp'))
pages = [path for path in [pathlib.Path('README.md'), *sorted(pathlib.Path('docs').glob('*.md'))]
         if path.name != '80-decisions.md']                                # lists old names beside the new ones
failed = 0


def report(rule, found):
    global failed
    failed += bool(found)
    for place in found:
        print(f'  {place}')
    print(('FAILED: ' if found else 'PASSED: ') + rule)


def blocks(lines):
    """(number of the first line, text) of each run of /// lines."""
    first, texts = 0, []
    for number, line in enumerate(lines + [''], 1):
        if (text := line.strip()).startswith('///'):
            first = first or number
            texts.append(text[3:].strip())
        elif first:
            yield first, texts
            first, texts = 0, []


if len(headers) < 300 or len(pages) < 15:
    report(f'the test sees all headers and pages, not {len(headers)} and {len(pages)}', ['see test/docs/BUILD'])
begin, ask, old, bare, oblique = [], [], [], [], []
for header in headers:
    lines = header.read_text().split('\n')
    for number, texts in blocks(lines):
        begin += [f'{header}:{number}: {texts[0]}'] if BEGINS.match(texts[0]) else []
        ask += [f'{header}:{number}: {text}' for text in texts if text.endswith('?')]
    detail = False
    for number, line in enumerate(lines, 1):
        old += [f'{header}:{number}: {line.strip()}'] if OLD.search(line) else []
        oblique += [f'{header}:{number}: {line.strip()}'] if OBLIQUE.search(line.partition('//')[2]) else []
        if line.startswith('namespace '):
            detail = 'detail' in line
        elif line.startswith('}  // namespace'):
            detail = detail and 'detail' not in line
        if (entity := ENTITY.match(line)) and not detail and not re.search(r';(\s*//.*)?$', line):
            above = number - 2
            while above >= 0 and re.match(r'(template|  requires|\[\[|#)', lines[above]):
                above -= 1
            if not lines[above].startswith('//'):
                bare.append(f'{header}:{number}: {entity[1]}')
for page in pages:
    old += [f'{page}:{number}: {line.strip()}' for number, line in enumerate(page.read_text().split('\n'), 1)
            if OLD.search(line)]
report('no docstring begins with "The same", "Of" or "As"', begin)
report('no docstring asks', ask)
report('no word that the glossary has replaced', old)
report(f'{len(oblique)} lines of comments have oblique words, at most {AT_MOST}', oblique if len(oblique) > AT_MOST else [])
report('each public class and concept has a docstring', bare)
sys.exit(failed != 0)
