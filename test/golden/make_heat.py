#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes heat.safetensors: a loss of a differential equation in PyTorch, whose derivatives torch.autograd differentiates
again, as numbers to compare with.

    python3 test/golden/make_heat.py test/golden/heat.safetensors

Made with PyTorch (PyPI's torch, 2.x) in float64, stored as float32; README.md has the tolerances. u is a network of two
hidden layers, Tanh and Sigmoid. The loss is the mean over the rows of (u_t - 0.25 u_xx + 0.5 u_xt u)^2 inside, plus 2
times that of (u - value)^2 at the edge. Points, values and variables are from `value`, the integer formula of
formula.hpp, not stored.
"""
import sys

import numpy as np
import torch
from torch import nn

from make_gan import around_zero, value, write_safetensors

ROWS, STEPS, HIDDEN = 7, 4, 6
VARIABLES = [((2, HIDDEN), 0x11, 4), ((HIDDEN,), 0x22, 1), ((HIDDEN, HIDDEN), 0x33, 4), ((HIDDEN,), 0x44, 1),
             ((HIDDEN, 1), 0x55, 4), ((1,), 0x66, 1)]
NAMES = [f"dense{i}/{kind}" for i in ("", "_1", "_2") for kind in ("kernel", "bias")]


def derivative(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def compute(dtype):
    v = [torch.tensor(around_zero(*one), dtype=dtype, requires_grad=True) for one in VARIABLES]
    u = lambda x: torch.sigmoid(torch.tanh(x @ v[0] + v[1]) @ v[2] + v[3]) @ v[4] + v[5]
    inside = torch.tensor(value(2 * ROWS, 0x77).reshape(ROWS, 2), dtype=dtype, requires_grad=True)
    edge = torch.tensor(value(2 * ROWS, 0x88).reshape(ROWS, 2), dtype=dtype)
    wanted = torch.tensor(around_zero((ROWS, 1), 0x99, 2), dtype=dtype)
    rule = torch.optim.Adam(v, lr=0.01, eps=1e-7)
    tensors, losses = {}, []
    for step in range(STEPS):
        y = u(inside)
        first = derivative(y, inside)
        second = derivative(first[:, 0], inside)
        residual = first[:, 1:] - 0.25 * second[:, :1] + 0.5 * second[:, 1:] * y
        loss = residual.square().mean() + 2 * nn.functional.mse_loss(u(edge), wanted)
        rule.zero_grad()
        loss.backward()
        if step == 0:
            tensors |= {f"gradient/{name}": one.grad.numpy().copy() for name, one in zip(NAMES, v)}
            tensors |= {"u": y.detach().numpy(), "u_x": first[:, :1].detach().numpy(), "u_t": first[:, 1:].detach().numpy(),
                        "u_xx": second[:, :1].detach().numpy(), "u_xt": second[:, 1:].detach().numpy()}
        rule.step()
        losses.append(loss.item())
    tensors["losses"] = np.array(losses)
    return tensors | {f"variable/{name}": one.detach().numpy() for name, one in zip(NAMES, v)}


def main():
    exact, rounded = compute(torch.float64), compute(torch.float32)
    print(f"{'float32 against float64':32} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        print(f"{name:32} {np.abs(exact[name]).max():9.2e} {np.abs(exact[name] - rounded[name]).max():9.1e}")
    write_safetensors(sys.argv[1], exact, "make_heat.py")


if __name__ == "__main__":
    main()
