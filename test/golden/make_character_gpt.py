#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes character_gpt.safetensors: a small GPT in PyTorch, its loss, all gradients and five steps, as numbers to compare with.

    python3 test/golden/make_character_gpt.py test/golden/character_gpt.safetensors

Made with PyTorch (PyPI's torch, 2.x) in float64, stored as float32; README.md has the tolerances. Two blocks, two
heads, 8 wide, 6 steps, 11 characters, a table that is the last layer as well, as examples/15_character_gpt.cpp; AdamW shrinks
matrices alone, gradients are clipped to a norm of 1. Text and variables are from `value`, the integer formula of
formula.hpp, not stored; a gamma is 1 more than the formula says.
"""
import sys

import numpy as np
import torch
from torch.nn import functional as F

from make_gan import around_zero, value, write_safetensors

ROWS, STEPS, CHARACTERS, WIDTH, HEADS, BLOCKS, UPDATES = 3, 6, 11, 8, 2, 2, 5


def shapes():
    """Names and shapes as ours: kernels are (in, out)."""
    yield "embedding/embeddings", (CHARACTERS, WIDTH)
    yield "positions/places", (STEPS, WIDTH)
    dense = norm = 0
    for _ in range(BLOCKS):
        for widths in (((WIDTH, 3 * WIDTH), (WIDTH, WIDTH)), ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))):
            layer = "layer_normalization" + (f"_{norm}" if norm else "")
            yield layer + "/gamma", (WIDTH,)
            yield layer + "/beta", (WIDTH,)
            norm += 1
            for widths_of_layer in widths:
                layer = "dense" + (f"_{dense}" if dense else "")
                yield layer + "/kernel", widths_of_layer
                yield layer + "/bias", widths_of_layer[1:]
                dense += 1
    yield f"layer_normalization_{norm}/gamma", (WIDTH,)
    yield f"layer_normalization_{norm}/beta", (WIDTH,)


def initial(dtype):
    variables = {}
    for i, (name, shape) in enumerate(shapes()):
        numbers = around_zero(shape, 0x101 * (i + 1), 1) + (1 if name.endswith("gamma") else 0)
        variables[name] = torch.tensor(numbers.astype(np.float32), dtype=dtype, requires_grad=True)
    return variables


def loss_of(v, text, following):
    x = v["embedding/embeddings"][text] + v["positions/places"]
    number = {"dense": 0, "layer_normalization": 0}

    def named(kind, *parts):
        name = kind + (f"_{number[kind]}" if number[kind] else "")
        number[kind] += 1
        return [v[f"{name}/{part}"] for part in parts]

    def norm(x):
        return F.layer_norm(x, (WIDTH,), *named("layer_normalization", "gamma", "beta"))

    def dense(x):
        kernel, bias = named("dense", "kernel", "bias")
        return x @ kernel + bias

    for _ in range(BLOCKS):
        q, k, v_ = (part.view(ROWS, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2)
                    for part in dense(norm(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v_, is_causal=True)
        x = x + dense(y.transpose(1, 2).reshape(ROWS, STEPS, WIDTH))
        x = x + dense(F.gelu(dense(norm(x))))
    logits = norm(x) @ v["embedding/embeddings"].T
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def compute(dtype):
    variables = initial(dtype)
    numbers = (value(ROWS * (STEPS + 1), 0x9999) * CHARACTERS).astype(np.int64).reshape(ROWS, STEPS + 1)
    text, following = torch.tensor(numbers[:, :-1]), torch.tensor(numbers[:, 1:])
    plain = [v for name, v in variables.items() if v.ndim == 1]
    matrices = [v for name, v in variables.items() if v.ndim == 2]
    rule = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                             lr=1e-2, betas=(0.9, 0.99), eps=1e-7)
    tensors, losses = {}, []
    for step in range(UPDATES):
        rule.zero_grad()
        loss = loss_of(variables, text, following)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            tensors = {f"gradient/{name}": v.grad.numpy().copy() for name, v in variables.items()}
        torch.nn.utils.clip_grad_norm_(variables.values(), 1.0)
        rule.step()
    tensors |= {f"variable/{name}": v.detach().numpy() for name, v in variables.items()}
    tensors["losses"] = np.array(losses)
    return tensors


def main():
    exact, rounded = compute(torch.float64), compute(torch.float32)
    print(f"{'float32 against float64':44} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        print(f"{name:44} {np.abs(exact[name]).max():9.2e} {np.abs(exact[name] - rounded[name]).max():9.1e}")
    write_safetensors(sys.argv[1], exact, "make_character_gpt.py")


if __name__ == "__main__":
    main()
