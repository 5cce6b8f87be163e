#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gan.safetensors: a GAN of two small networks in PyTorch, three steps, as numbers to compare with.

    python3 test/golden/make_gan.py test/golden/gan.safetensors

Made with PyTorch (PyPI's torch, 2.x) in float64, stored as float32; README.md has the tolerances. In each step the
discriminator learns from real and made points together, then the generator from the gradient by its points, as
examples/12_gan.cpp. Points, noise and variables are from `value`, the integer formula of formula.hpp, not stored.
"""
import json
import struct
import sys

import numpy as np
import torch
from torch import nn

ROWS, STEPS, HIDDEN = 6, 3, 5
GENERATOR = [((2, HIDDEN), 0x11, 2), ((HIDDEN,), 0x22, 1), ((HIDDEN, 2), 0x33, 2), ((2,), 0x44, 1)]
DISCRIMINATOR = [((2, HIDDEN), 0x55, 2), ((HIDDEN,), 0x66, 1), ((HIDDEN, 1), 0x77, 2), ((1,), 0x88, 1)]
NAMES = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]


def value(count, salt):
    i = np.arange(count, dtype=np.int64)
    return ((i * 2654435761 + salt) % 2**32 >> 8).astype(np.float64) * 2.0**-24


def around_zero(shape, salt, scale):
    return ((value(int(np.prod(shape)), salt) - 0.5) * scale).reshape(shape)


def network(variables, dtype):
    """Kernels are (in, out) in the formula, as in Keras, and (out, in) in PyTorch."""
    tensors = [torch.tensor(around_zero(*v), dtype=dtype) for v in variables]
    net = nn.Sequential(nn.Linear(2, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, tensors[3].shape[0])).to(dtype)
    with torch.no_grad():
        for parameter, tensor in zip(net.parameters(), tensors):
            parameter.copy_(tensor.T if tensor.ndim == 2 else tensor)
    return net


def gradients(net):
    grads = [p.grad.T if p.ndim == 2 else p.grad for p in net.parameters()]
    return {name: g.detach().numpy() for name, g in zip(NAMES, grads)}


def compute(dtype):
    generator, discriminator = network(GENERATOR, dtype), network(DISCRIMINATOR, dtype)
    rules = [torch.optim.Adam(net.parameters(), lr=0.02, betas=(0.5, 0.999), eps=1e-7) for net in (generator, discriminator)]
    loss = nn.BCEWithLogitsLoss()
    tensors, losses = {}, []
    ones, zeros = torch.ones(ROWS, 1, dtype=dtype), torch.zeros(ROWS, 1, dtype=dtype)
    for step in range(STEPS):
        noise = torch.tensor(around_zero((ROWS, 2), 0x1000 + step, 4), dtype=dtype)
        real = torch.tensor(around_zero((ROWS, 2), 0x2000 + step, 2), dtype=dtype)
        made = generator(noise)
        rules[1].zero_grad()
        of_discriminator = loss(discriminator(torch.cat([real, made.detach()])), torch.cat([ones, zeros]))
        of_discriminator.backward()
        if step == 0:
            tensors |= {f"discriminator/{name}": g.copy() for name, g in gradients(discriminator).items()}
        rules[1].step()
        rules[0].zero_grad()
        of_generator = loss(discriminator(made), ones)
        of_generator.backward()
        if step == 0:
            tensors |= {f"generator/{name}": g.copy() for name, g in gradients(generator).items()}
        rules[0].step()
        losses += [of_discriminator.item(), of_generator.item()]
    tensors["losses"] = np.array(losses)
    tensors["made"] = generator(noise).detach().numpy()
    return tensors


def write_safetensors(path, tensors, by="make_gan.py"):
    header, offset, data = {"__metadata__": {"computed in": "float64", "made by": f"test/golden/{by}",
                                             "torch": torch.__version__.split("+")[0]}}, 0, b""
    for name in sorted(tensors):
        bytes_ = np.ascontiguousarray(tensors[name], dtype="<f4").tobytes()
        end = offset + len(bytes_)
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        offset, data = end, data + bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    exact, rounded = compute(torch.float64), compute(torch.float32)
    print(f"{'float32 against float64':32} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        print(f"{name:32} {np.abs(exact[name]).max():9.2e} {np.abs(exact[name] - rounded[name]).max():9.1e}")
    write_safetensors(sys.argv[1], exact)


if __name__ == "__main__":
    main()
