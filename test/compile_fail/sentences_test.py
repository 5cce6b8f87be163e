#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the sentences of static_assert in include/ that no case beside this file and below expects.

A sentence that nobody has seen may be one of several errors, or name something that does not exist any more. There may be
no more of them than MOST: who adds one adds a pair of cases, and who adds a pair for an old one lowers the number.
"""
import pathlib
import re
import sys

sys.path.append('test/support')
from compile_cases import all_cases

MOST = 0
TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|[()]')


def sentences(header):
    """The sentences of a header, each with the number of its line."""
    text = header.read_text()
    for found in re.finditer(r'static_assert\(', text):
        depth, words = 1, []
        for token in TOKEN.finditer(text, found.end()):
            if token[1] is not None:
                words.append(token[1])
            else:
                depth += 1 if token[0] == '(' else -1
            if depth == 0:
                break
        sentence = ''.join(words).replace('\\"', '"')
        if (at := sentence.find('chorale:')) >= 0:
            yield text.count('\n', 0, found.start()) + 1, sentence[at:]


def main():
    cases = {case.expected for case in all_cases() if not case.compiles}
    headers = sorted(pathlib.Path('include').rglob('*.hpp'))
    every = [(header, line, sentence) for header in headers for line, sentence in sentences(header)]
    unseen = [one for one in every if not any(case in one[2] for case in cases)]
    for header, line, sentence in unseen:
        print(f'no case: {header}:{line}: {sentence}')
    print(f'{len(every)} sentences, {len(unseen)} of them without a case; at most {MOST}')
    if len(every) < 200 or len(cases) < 200:
        print('FAILED: the test does not see all headers and cases')
        return 1
    if len(unseen) > MOST:
        print('FAILED: a sentence without a case. Add a pair of cases to test/compile_fail')
        return 1
    print('PASSED')
    return 0


sys.exit(main())
