#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of PyTorch on a GPU, measured whenever a line asks for them.

    in     NET ROWS MODE STEPS        out    us N, microseconds a step, or: no WHY

Modes: eager; compiled, which is torch.compile of forward and loss, with CUDA graphs (reduce-overhead); graph, the same
without, and the whole step with its update recorded as one CUDA graph. Batches are on the device, and nothing waits for
it before the last step. Products are float, without TF32; those of ResNet-50's blocks are bf16 by torch.autocast.
"""
import argparse
import contextlib
import sys
import time

import torch
from torch import nn


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def mlp():
    return nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


class Bottleneck(nn.Module):
    """A block of ResNet-50 around which its input goes, behind a narrow convolution; logits of its mean pixel."""

    def __init__(self, width):
        super().__init__()

        def conv(inputs, outputs, size):
            return nn.Sequential(nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False),
                                 nn.BatchNorm2d(outputs))

        self.stem = nn.Sequential(conv(8, 4 * width, 1), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(conv(4 * width, width, 1), nn.ReLU(inplace=True), conv(width, width, 3),
                                    nn.ReLU(inplace=True), conv(width, 4 * width, 1))
        self.logits = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.logits(torch.relu(x + self.layers(x)).mean((2, 3)))


# The network, the shape of a row, and whether products are bf16.
NETS = {
    "cnn": (cnn, (1, 28, 28), False),
    "mlp": (mlp, (784,), False),
    "block_64": (lambda: Bottleneck(64), (8, 56, 56), True),
    "block_128": (lambda: Bottleneck(128), (8, 28, 28), True),
    "block_256": (lambda: Bottleneck(256), (8, 14, 14), True),
    "block_512": (lambda: Bottleneck(512), (8, 7, 7), True),
}


def make_step(name, rows, mode, device):
    make, shape, halves = NETS[name]
    torch.manual_seed(1)
    net = make().to(device)
    x, y = torch.rand(rows, *shape, device=device), torch.randint(10, (rows,), device=device)
    if len(shape) == 3:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    on_gpu = device == "cuda"
    rule = torch.optim.Adam(net.parameters(), fused=on_gpu, capturable=on_gpu)

    def loss_of(x, y):
        with torch.autocast(device, torch.bfloat16) if halves else contextlib.nullcontext():
            return nn.functional.cross_entropy(net(x), y)

    if mode != "eager":
        loss_of = torch.compile(loss_of, mode="reduce-overhead" if mode == "compiled" else None)

    def step():
        rule.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        rule.step()
        return loss

    if mode != "graph" or not on_gpu:
        return step
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    whole = torch.cuda.CUDAGraph()
    rule.zero_grad(set_to_none=True)
    with torch.cuda.graph(whole):
        kept = step()
    return lambda: (whole.replay(), kept)[1]


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--device", default="cuda")
    device = flags.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    print("ready PyTorch", torch.__version__, flush=True)
    steps = {}
    for line in sys.stdin:
        name, rows, mode, count = line.split()
        try:
            key = name, rows, mode
            if key not in steps:
                if not any(name == other for other, _, _ in steps):
                    steps.clear()                                          # the memory of another network
                steps[key] = make_step(name, int(rows), mode, device)
                for _ in range(10):
                    steps[key]()
            wait()
            start = time.perf_counter()
            for _ in range(int(count)):
                loss = steps[key]()
            wait()
            spent = (time.perf_counter() - start) / int(count)
            print(f"us {spent * 1e6:.2f} loss {loss.item():.5f}", flush=True)
        except Exception as error:                             # who asks says it, and counts it as skipped
            print("no", type(error).__name__, " ".join(str(error).split())[:200], flush=True)


main()
