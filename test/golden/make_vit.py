#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes vit.safetensors: a small vision transformer in PyTorch, its logits, loss, all gradients and three steps, as
numbers to compare with.

    python3 test/golden/make_vit.py test/golden/vit.safetensors

Made with PyTorch (PyPI's torch, 2.x) in float64, stored as float32; README.md has the tolerances. The blocks are
torch.nn.TransformerEncoderLayer with norm_first, 8 wide, of two heads; images are 6 x 9 pixels of two channels, in 6
patches, behind a class token, as in examples/18_vision_transformer.cpp. AdamW shrinks kernels and tables. Images, labels
and variables are from `value`, the integer formula of formula.hpp, not stored; a gamma is 1 more than the formula says.
Names and layouts are ours.
"""
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from make_gan import around_zero, value, write_safetensors

ROWS, HEIGHT, BREADTH, CHANNELS, PATCH, CLASSES = 3, 6, 9, 2, 3, 5
WIDTH, HEADS, WIDER, BLOCKS, UPDATES = 8, 2, 16, 2, 3
PATCHES = HEIGHT // PATCH * (BREADTH // PATCH)


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, WIDTH, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.zeros(1, WIDTH))
        self.places = nn.Parameter(torch.zeros(PATCHES + 1, WIDTH))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, WIDER, dropout=0.0, activation="gelu", batch_first=True,
                                       norm_first=True) for _ in range(BLOCKS))
        self.last = nn.LayerNorm(WIDTH)
        self.digit = nn.Linear(WIDTH, CLASSES)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(ROWS, 1, WIDTH), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.digit(self.last(x)[:, 0])


def named(net):
    """(our name, parameter, axes of ours that are those of PyTorch): as numpy.transpose takes them."""
    linear, plain = (1, 0), (0,)
    yield "conv2d/kernel", net.patches.weight, (2, 3, 1, 0)
    yield "conv2d/bias", net.patches.bias, plain
    yield "class_token/token", net.token, (0, 1)
    yield "positions/places", net.places, (0, 1)
    count = {"dense": 0, "layer_normalization": 0}

    def next_of(kind):
        count[kind] += 1
        return kind + (f"_{count[kind] - 1}" if count[kind] > 1 else "")

    def norm(layer):
        name = next_of("layer_normalization")
        return (name + "/gamma", layer.weight, plain), (name + "/beta", layer.bias, plain)

    def dense(weight, bias):
        name = next_of("dense")
        return (name + "/kernel", weight, linear), (name + "/bias", bias, plain)

    for block in net.blocks:
        yield from norm(block.norm1)
        yield from dense(block.self_attn.in_proj_weight, block.self_attn.in_proj_bias)
        yield from dense(block.self_attn.out_proj.weight, block.self_attn.out_proj.bias)
        yield from norm(block.norm2)
        yield from dense(block.linear1.weight, block.linear1.bias)
        yield from dense(block.linear2.weight, block.linear2.bias)
    yield from norm(net.last)
    yield from dense(net.digit.weight, net.digit.bias)


def ours(tensor, axes):
    return tensor.detach().numpy().transpose(axes).copy()


def compute(dtype):
    net = VisionTransformer().to(dtype)
    with torch.no_grad():
        for i, (name, parameter, axes) in enumerate(named(net)):
            shape = [parameter.shape[axis] for axis in axes]
            numbers = around_zero(shape, 0x101 * (i + 1), 1) + (1 if name.endswith("gamma") else 0)
            parameter.copy_(torch.tensor(numbers.astype(np.float32).transpose(np.argsort(axes))))
    image = value(ROWS * HEIGHT * BREADTH * CHANNELS, 0x9999).reshape(ROWS, HEIGHT, BREADTH, CHANNELS)
    image = torch.tensor(image, dtype=dtype).permute(0, 3, 1, 2)
    labels = torch.tensor([(3 * r + 1) % CLASSES for r in range(ROWS)])
    plain = [p for name, p, _ in named(net) if name.endswith(("bias", "gamma", "beta"))]
    shrunk = [p for name, p, _ in named(net) if not name.endswith(("bias", "gamma", "beta"))]
    rule = torch.optim.AdamW([{"params": shrunk, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
                             lr=1e-2, betas=(0.9, 0.999), eps=1e-7)
    tensors, losses = {}, []
    for step in range(UPDATES):
        rule.zero_grad()
        logits = net(image)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            tensors["logits"] = logits.detach().numpy()
            tensors |= {f"gradient/{name}": ours(p.grad, axes) for name, p, axes in named(net)}
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        rule.step()
    tensors |= {f"variable/{name}": ours(p, axes) for name, p, axes in named(net)}
    tensors["losses"] = np.array(losses)
    return tensors


def main():
    exact, rounded = compute(torch.float64), compute(torch.float32)
    print(f"{'float32 against float64':44} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        print(f"{name:44} {np.abs(exact[name]).max():9.2e} {np.abs(exact[name] - rounded[name]).max():9.1e}")
    write_safetensors(sys.argv[1], exact, "make_vit.py")


if __name__ == "__main__":
    main()
