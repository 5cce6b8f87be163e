#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gpt.safetensors and gpt_halves.safetensors: weights of a small GPT in PyTorch, and what it predicts with them.

    python3 test/golden/make_gpt.py test/golden/gpt.safetensors test/golden/gpt_halves.safetensors

Made with PyTorch (PyPI's torch, 2.x) and safetensors; README.md has the tolerances. The names are those of the module,
kernels are (out, in), q, k and v have kernels of their own, and the
head is the table of words. In the second file matrices are bfloat16, vectors float16
and tables float64, as `dtype_of` says. `logits` are computed in float64 from the weights as stored. Weights and ids are of
`value`, the integer formula of formula.hpp.
"""
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

ROWS, T, WORDS, C, HEADS, LAYERS = 3, 5, 13, 8, 2, 2


def value(count, salt):
    i = np.arange(count, dtype=np.int64)
    return ((i * 2654435761 + salt) % 2**32 >> 8).astype(np.float64) * 2.0**-24


def ids():
    return torch.tensor(np.floor(value(ROWS * T, 0x1B873593) * WORDS).astype(np.int64).reshape(ROWS, T))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.q, self.k, self.v, self.proj = (nn.Linear(C, C) for _ in range(4))
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.register_buffer("mask", torch.tril(torch.ones(T, T)))

    def forward(self, x):
        z = self.norm_1(x)
        q, k, v = (f(z).reshape(ROWS, T, HEADS, C // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(ROWS, T, C)
        x = x + self.proj(y)
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(C)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(T))
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.words.weight)


def dtype_of(name, tensor):
    if name.startswith(("words", "places")):
        return torch.float64
    return torch.bfloat16 if tensor.ndim == 2 else torch.float16


def make(path, dtype):
    net = Gpt().double()
    stored = {}
    with torch.no_grad():
        for n, (name, tensor) in enumerate(net.state_dict().items()):
            if not name.endswith("mask"):
                made = torch.tensor(((value(tensor.numel(), 0x2545F491 * (n + 1)) - 0.5) * 2).reshape(tensor.shape))
                tensor.copy_((made + (1 if "norm" in name and name.endswith("weight") else 0)).to(dtype(name, tensor)))
            stored[name] = tensor.to(dtype(name, tensor))
        exact, rounded = net(ids()), net.float()(ids())
    print(f"{path}: logits up to {exact.abs().max():.2f}, float32 is off by {(exact - rounded).abs().max():.1e}")
    save_file({**stored, "logits": exact.float()}, path)


if __name__ == "__main__":
    make(sys.argv[1], lambda name, tensor: torch.float32)
    make(sys.argv[2], dtype_of)
