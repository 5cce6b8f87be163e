#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes bert.safetensors: weights of a small BERT of the package transformers, and what it makes of texts with them.

    python3 test/golden/make_bert.py test/golden/bert.safetensors
    python3 test/golden/make_bert.py sentences.safetensors FOLDER

Made with PyTorch, transformers and safetensors from PyPI; README.md has the tolerances. Names and layouts are those of
transformers.BertModel. `sentences` are what sentence-transformers computes of it, in float64 from the weights as stored:
the mean over the vectors of a text, of length 1. Texts are of 5, 1, 9, 3 and 12 ids, padded under an attention mask.
Weights and ids are of `value`, the integer formula of formula.hpp.

The second form computes `sentences` and `ids` with the published weights of all-MiniLM-L6-v2 in FOLDER, which has
config.json and model.safetensors, of texts of 3 to 128 ids: see encoders_test.cpp.
"""
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

from make_gan import value

LENGTHS = (5, 1, 9, 3, 12)
LONG_LENGTHS = (3, 128, 17, 40)
SMALL = dict(vocab_size=31, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
             max_position_embeddings=12, layer_norm_eps=1e-12, hidden_act="gelu")


def ids_of(lengths, words):
    padded = np.zeros((len(lengths), max(lengths)), np.int64)
    numbers = np.floor(value(sum(lengths), 0x1B873593) * words).astype(np.int64)
    for row, length in enumerate(lengths):
        padded[row, :length], numbers = numbers[:length], numbers[length:]
    return torch.tensor(padded)


def sentences(net, ids, lengths):
    mask = torch.tensor([[t < length for t in range(max(lengths))] for length in lengths])
    states = net(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=1)


def compare(path, net, lengths):
    net.eval()
    ids = ids_of(lengths, net.config.vocab_size)
    with torch.no_grad():
        exact, rounded = sentences(net.double(), ids, lengths), sentences(net.float(), ids, lengths)
    print(f"{path}: up to {exact.abs().max():.2f}, float32 is off by {(exact - rounded).abs().max():.1e}")
    return exact.float().contiguous(), ids


def main():
    if len(sys.argv) > 2:
        net = BertModel(BertConfig.from_pretrained(sys.argv[2], attn_implementation="eager"))
        missing, unexpected = net.load_state_dict(load_file(sys.argv[2] + "/model.safetensors"), strict=False)
        assert not missing and set(unexpected) <= {"embeddings.position_ids"}, (missing, unexpected)
        exact, ids = compare(sys.argv[1], net, LONG_LENGTHS)
        save_file({"sentences": exact, "ids": ids.int()}, sys.argv[1])
        return
    net = BertModel(BertConfig(**SMALL, attn_implementation="eager"))
    stored = {}
    with torch.no_grad():
        for n, (name, tensor) in enumerate(net.state_dict().items()):
            if not tensor.is_floating_point():
                continue
            made = torch.tensor((value(tensor.numel(), 0x2545F491 * (n + 1)) - 0.5).reshape(tensor.shape))
            tensor.copy_(made + (1 if name.endswith("LayerNorm.weight") else 0))
            stored[name] = tensor.float().clone()
    exact, _ = compare(sys.argv[1], net, LENGTHS)
    save_file({**stored, "sentences": exact}, sys.argv[1])


if __name__ == "__main__":
    main()
