#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One measurement of DistributedDataParallel over gloo: the CNN of bench/libtorch on two processes of one thread each.

Prints "ms_per_step N", the median over blocks of steps of the slower process. as_written is what the tutorial has; tuned
lets gradients lie in their buckets, says that the graph does not change, and fuses the optimizer."""
import argparse
import socket
import time

import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch import nn

RANKS, BLOCK, WARM_UP = 2, 5, 3


def make():
    widths = (64, 128, 128, 256, 256, 256)
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]       # (B, 32, 14, 14)
    before = 32
    for i, width in enumerate(widths):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if i in (0, 3) else []                      # 14 to 7 to 3
        before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2304, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                         nn.Linear(256, 10))


def train(rank, args, port, all_times):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    tuned = args.way == "tuned"
    options = {"gradient_as_bucket_view": True, "static_graph": True} if tuned else {}
    net = nn.parallel.DistributedDataParallel(make(), **options)
    rule = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True if tuned else None)
    loss = nn.CrossEntropyLoss()
    x, y = torch.rand(args.rows, 1, 28, 28), torch.arange(args.rows) % 10
    times = []
    for block in range(-WARM_UP, args.blocks):
        start = time.perf_counter()
        for _ in range(BLOCK):
            rule.zero_grad()
            loss(net(x), y).backward()
            rule.step()
        if block >= 0:
            times.append(time.perf_counter() - start)
    all_times[rank] = times
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("way", choices=("as_written", "tuned"))
    flags.add_argument("--rows", type=int, required=True)
    flags.add_argument("--blocks", type=int, default=20)
    args = flags.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with processes.Manager() as manager:
        all_times = manager.dict()
        processes.spawn(train, (args, port, all_times), nprocs=RANKS)
        slowest = [max(times) for times in zip(*all_times.values())]
    print("torch", torch.__version__)
    print("ms_per_step", sorted(slowest)[len(slowest) // 2] * 1e3 / BLOCK)


if __name__ == "__main__":
    main()
