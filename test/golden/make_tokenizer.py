#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokenizer.json and tokenizer_ids.json: a small byte-level BPE, and the ids that it gives for some texts.

    python3 test/golden/make_tokenizer.py test/golden/tokenizer.json test/golden/tokenizer_ids.json

Made with the package tokenizers (PyPI). It is trained on TEXTS themselves, so that there is something to merge in all
of them.
"""
import json
import sys

from tokenizers import ByteLevelBPETokenizer

TEXTS = [
    "", "a", " ", "  ", "\n", "Hello, world!", "  leading and trailing  ", "tabs\tand\n\nlines\r\n  indented\n",
    "I'm sure they'll say we've won; it's what you'd do, isn't it? 'tis 'Twas O'Neill's DON'T",
    "12 monkeys, 3.14159, 1e-5, x2y, 2024-01-31, 1,000,000",
    "def f(x):\n    return x**2  # squared\n\n\nclass A:\n\tpass\n",
    "Größe, Straße, naïve café, Ångström, œuvre, ﬁne",
    "Ελληνικά και русский язык, עברית, العربية ١٢٣, हिन्दी में लिखा, ภาษาไทย",
    "中文字符，日本語のテキスト、한국어 문장。", "½ ² ³ Ⅷ ⅻ ٣ ௧ ①②③ 〇",
    "emoji 😀 😀😀 👩‍👩‍👧 🇩🇪 and\u00a0a no-break\u2003em space\u3000ideographic\u200bzero width",
    "e\u0301 combining, a\u0308\u0323", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "$$$ --- ... !!! ?!?! <<>> '' '\u2019s \u2018quoted\u2019 \u201cdouble\u201d \u2014 dash",
    "one<|endoftext|>two <|endoftext|> three<|endoftext|><|endoftext|><|end|>",
    "the cat sat on the mat and the other cat sat on the other mat, then the cats sat there",
    "\x00\x01\x1f\x7f control \x85next line\u2028separator", "\U0010ffff \ue000 private \ufeff",
    "word\n", "word\n\n", "word \n word", "word  \n\n  word", " 's 't", "  's", "a 1b2 c3",
]

if __name__ == "__main__":
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS * 3, vocab_size=480, min_frequency=2, special_tokens=["<|endoftext|>"],
                                show_progress=False)
    trained.save(sys.argv[1], pretty=False)
    cases = [{"text": text, "ids": trained.encode(text).ids} for text in TEXTS]
    for case in cases:
        assert trained.decode(case["ids"], skip_special_tokens=False) == case["text"], case
    with open(sys.argv[2], "w", encoding="ascii") as file:
        json.dump(cases, file, separators=(",", ":"))
    print(f"{trained.get_vocab_size()} tokens, {sum(len(case['ids']) for case in cases)} ids")
