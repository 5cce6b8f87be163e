#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes conv_gan.safetensors: a GAN of convolutions in PyTorch, two steps, as numbers to compare with.

    python3 test/golden/make_conv_gan.py test/golden/conv_gan.safetensors

Made with PyTorch (PyPI's torch, 2.x) in float64, stored as float32; README.md has the tolerances. The generator makes
images (12, 12, 1) of noise by two transposed convolutions, the discriminator has two convolutions, all 4 x 4 with stride
2. In each step the discriminator learns from real and made images together, then the generator from the gradient by
its images. Images, noise and variables are from `value`, the integer formula of formula.hpp, in Keras' layouts, and not
stored.
"""
import sys

import numpy as np
import torch
from torch.nn.functional import (binary_cross_entropy_with_logits as loss_of, conv2d, conv_transpose2d,
                                 leaky_relu)

from make_gan import around_zero, write_safetensors

ROWS, STEPS = 3, 2
GENERATOR = {"dense/kernel": (3, 36), "dense/bias": (36,), "conv2d_transpose/kernel": (4, 4, 3, 4),
             "conv2d_transpose/bias": (3,), "conv2d_transpose_1/kernel": (4, 4, 1, 3), "conv2d_transpose_1/bias": (1,)}
DISCRIMINATOR = {"conv2d/kernel": (4, 4, 1, 4), "conv2d/bias": (4,), "conv2d_1/kernel": (4, 4, 4, 5),
                 "conv2d_1/bias": (5,), "dense/kernel": (45, 1), "dense/bias": (1,)}


def variables(shapes, salt, dtype):
    return {name: torch.tensor(around_zero(shape, salt + 0x11 * i, 1), dtype=dtype, requires_grad=True)
            for i, (name, shape) in enumerate(shapes.items())}


def generate(v, noise):
    x = leaky_relu(noise @ v["dense/kernel"] + v["dense/bias"], 0.2).reshape(-1, 3, 3, 4).permute(0, 3, 1, 2)
    for name, activation in (("conv2d_transpose", lambda y: leaky_relu(y, 0.2)), ("conv2d_transpose_1", torch.tanh)):
        kernel = v[f"{name}/kernel"].permute(3, 2, 0, 1)
        x = activation(conv_transpose2d(x, kernel, v[f"{name}/bias"], stride=2, padding=1))
    return x.permute(0, 2, 3, 1)


def judge(v, image):
    x = image.permute(0, 3, 1, 2)
    for name in ("conv2d", "conv2d_1"):
        x = leaky_relu(conv2d(x, v[f"{name}/kernel"].permute(3, 2, 0, 1), v[f"{name}/bias"], stride=2, padding=1), 0.2)
    return x.permute(0, 2, 3, 1).flatten(1) @ v["dense/kernel"] + v["dense/bias"]


def compute(dtype):
    g, d = variables(GENERATOR, 0x100, dtype), variables(DISCRIMINATOR, 0x200, dtype)
    rules = [torch.optim.Adam(v.values(), lr=0.02, betas=(0.5, 0.999), eps=1e-7) for v in (g, d)]
    ones, zeros = torch.ones(ROWS, 1, dtype=dtype), torch.zeros(ROWS, 1, dtype=dtype)
    tensors, losses = {}, []
    for step in range(STEPS):
        noise = torch.tensor(around_zero((ROWS, 3), 0x1000 + step, 4), dtype=dtype)
        real = torch.tensor(around_zero((ROWS, 12, 12, 1), 0x2000 + step, 2), dtype=dtype)
        made = generate(g, noise)
        rules[1].zero_grad()
        of_discriminator = loss_of(judge(d, torch.cat([real, made.detach()])), torch.cat([ones, zeros]))
        of_discriminator.backward()
        if step == 0:
            tensors |= {f"discriminator/{name}": v.grad.numpy().copy() for name, v in d.items()}
        rules[1].step()
        rules[0].zero_grad()
        of_generator = loss_of(judge(d, made), ones)
        of_generator.backward()
        if step == 0:
            tensors |= {f"generator/{name}": v.grad.numpy().copy() for name, v in g.items()}
        rules[0].step()
        losses += [of_discriminator.item(), of_generator.item()]
    tensors["losses"] = np.array(losses)
    tensors["made"] = generate(g, noise).detach().numpy()
    return tensors


def main():
    exact, rounded = compute(torch.float64), compute(torch.float32)
    print(f"{'float32 against float64':44} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        print(f"{name:44} {np.abs(exact[name]).max():9.2e} {np.abs(exact[name] - rounded[name]).max():9.1e}")
    write_safetensors(sys.argv[1], exact, "make_conv_gan.py")


if __name__ == "__main__":
    main()
