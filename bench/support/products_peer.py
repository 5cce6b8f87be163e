#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One measurement of a training step in PyTorch: forward, loss, backward, SGD. Prints "ms_per_step N"."""
import argparse
import contextlib
import time

import torch
from torch import nn

NETS = {
    "mlp": ((784,), lambda: nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                                          nn.Linear(4096, 10))),
    "convolutions": ((64, 32, 32), lambda: nn.Sequential(
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 8 * 128, 10))),
}


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("net", choices=NETS)
    flags.add_argument("products", choices=("f32", "bf16"))
    flags.add_argument("--rows", type=int, required=True)
    flags.add_argument("--threads", type=int, required=True)
    flags.add_argument("--steps", type=int, default=15)
    args = flags.parse_args()
    torch.set_num_threads(args.threads)
    shape, make = NETS[args.net]
    net = make().to(memory_format=torch.channels_last) if len(shape) == 3 else make()
    x, y = torch.rand(args.rows, *shape), torch.randint(10, (args.rows,))
    if len(shape) == 3:
        x = x.to(memory_format=torch.channels_last)
    loss, rule = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=0.01)
    half = torch.autocast("cpu", torch.bfloat16) if args.products == "bf16" else contextlib.nullcontext()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        rule.zero_grad()
        with half:
            value = loss(net(x), y)
        value.backward()
        rule.step()
        times.append(time.perf_counter() - start)
    print("ms_per_step", sorted(times[3:])[len(times[3:]) // 2] * 1e3)


main()
