#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes word_piece.json and word_piece_ids.json: a small WordPiece, and the ids that it gives for some texts.

    python3 test/golden/make_word_piece.py test/golden/word_piece.json test/golden/word_piece_ids.json

Made with the packages tokenizers and transformers (PyPI). The vocabulary is trained on the texts, in lower case;
`as_written` has the ids of the same vocabulary without lower case, `cut` those of at most 8 ids. What
transformers.BertTokenizer gives is compared here.
"""
import json
import os
import sys
import tempfile

from tokenizers import BertWordPieceTokenizer, decoders
from transformers import BertTokenizer

from make_tokenizer import TEXTS as GPT_TEXTS

TEXTS = [text.replace("<|endoftext|>", "[SEP]") for text in GPT_TEXTS] + [
    "The quick brown fox jumps over the lazy dog.", "unaffable unbelievable UNBELIEVABLY Believe",
    "a[MASK]b [mask] [MASK][CLS]",
    "Ünïcödé ÀÉÎÕÜ ÇçŁł ß ẞ İıIi Ǆǅǆ Σσς", "한국어 문장 각 갛", "漢字豈更車 ぱパ ｶﾞ", "x" * 100 + " " + "x" * 101,
    "$5+3=8^2 `a|b~c <d>", "soft\u00adhyphen \ufffd\u0000nul\u200b\u2060", "\u0b4b\u1b06\U0001d15e\u1e69",
    "¿qué? «guillemets» ‹x› „y“ …",
    "A man is eating food.", "A man is eating a piece of bread.", "Two men pushed carts through the woods.",
    "\x0b\x0c\x1c\x85\u2029x",
]

if __name__ == "__main__":
    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(TEXTS * 3, vocab_size=400, min_frequency=2, limit_alphabet=200, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        trained.save_model(folder)
        whole, cased = (BertWordPieceTokenizer(os.path.join(folder, "vocab.txt"), lowercase=lower)
                        for lower in (True, False))
        theirs = BertTokenizer(os.path.join(folder, "vocab.txt"))
    whole.save(sys.argv[1], pretty=False)
    whole._tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    cases = []
    for text in TEXTS:
        ids = whole.encode(text).ids
        assert theirs(text)["input_ids"] == ids, (text, theirs(text)["input_ids"], ids)
        cases.append({"text": text, "ids": ids, "as_written": cased.encode(text).ids,
                      "cut": theirs(text, truncation=True, max_length=8)["input_ids"],
                      "decoded": whole.decode(ids, skip_special_tokens=False)})
    with open(sys.argv[2], "w", encoding="ascii") as file:
        json.dump(cases, file, separators=(",", ":"))
    print(f"{whole.get_vocab_size()} tokens, {sum(len(case['ids']) for case in cases)} ids in {len(cases)} texts")
