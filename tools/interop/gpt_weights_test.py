#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpt_weights_test.py PROGRAM: a small GPT-2, with weights from transformers here, and with weights from here there.

Both programs give the same logits for the same file: written here, and written there in float32 and in bfloat16.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

WORDS, STEPS, WIDTH, HEADS, BLOCKS, ROWS = 29, 6, 16, 4, 2, 3
failed = False


def verdict(what, ok):
    global failed
    print(f"{'PASSED' if ok else 'FAILED'}: {what}")
    failed |= not ok


def ours(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"FAILED: {program} {args}: {done.stderr}")
    return [[float(y) for y in row.split()] for row in done.stdout.splitlines()]


def check(program, folder):
    import numpy as np
    import torch
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel

    ids = torch.tensor([i * 37 % 101 % WORDS for i in range(ROWS * STEPS)]).reshape(ROWS, STEPS)
    torch.manual_seed(3)
    net = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=STEPS, n_embd=WIDTH, n_layer=BLOCKS, n_head=HEADS,
                                     activation_function="gelu_new", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                     bos_token_id=None, eos_token_id=None)).eval()

    def theirs():
        with torch.no_grad():
            return net(ids).logits.reshape(-1, WORDS).numpy()

    def agree(path):
        a, b = np.array(ours(program, "outputs", str(path))), theirs()
        return a.shape == b.shape and np.abs(a - b).max() < 1e-5 * max(1, np.abs(b).max())

    saved = folder / "ours.safetensors"
    ours(program, "save", str(saved))
    left = net.load_state_dict(load_file(saved), strict=False)
    verdict("transformers finds all weights that are written here, and no others",
            left.missing_keys in ([], ["lm_head.weight"]) and left.unexpected_keys == [])
    net.tie_weights()
    verdict("transformers gives the logits of weights written here", agree(saved))
    with torch.no_grad():
        for value in net.parameters():
            value.add_(0.1 * torch.randn(value.shape))
    net.save_pretrained(folder / "float32")
    verdict("the logits here are those of transformers, for weights written there", agree(folder / "float32/model.safetensors"))
    net.transformer.save_pretrained(folder / "body")
    verdict("so they are for a file of its body, without the prefix of its names", agree(folder / "body/model.safetensors"))
    net.to(torch.bfloat16).save_pretrained(folder / "bfloat16")
    net.float()
    verdict("so they are for weights written in bfloat16", agree(folder / "bfloat16/model.safetensors"))


def main():
    program = os.path.abspath(sys.argv[1])
    lacking = [name for name in ("torch", "safetensors", "transformers") if importlib.util.find_spec(name) is None]
    if lacking:
        print(f"SKIPPED: weights of GPT-2 in transformers: there is no python package {', '.join(lacking)}")
    else:
        with tempfile.TemporaryDirectory() as name:
            check(program, pathlib.Path(name))
    sys.exit(failed)


main()
