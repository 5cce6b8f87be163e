#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One measurement of a training step of an embedding in PyTorch, with sparse gradients. Prints "ms_per_step N".

With several processes, DistributedDataParallel over Gloo adds up the rows that came; each has its share of the batch.
"""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn

ROWS, WIDTH, IDS, BATCH = 1_000_000, 64, 20, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True)
        self.rest = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids):
        return self.rest(self.table(ids))


def run(rank, args, port):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    net = Model()
    if args.processes > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=args.processes)
        net = nn.parallel.DistributedDataParallel(net)
    if args.rule == "sgd":
        rule = torch.optim.SGD(net.parameters(), lr=0.01)
    else:
        rule = torch.optim.Adagrad(net.parameters(), lr=0.01, initial_accumulator_value=0.1)
    share = BATCH // args.processes
    batches = [torch.randint(0, ROWS, (share, IDS)) for _ in range(16)]
    scores, loss = torch.rand(share, 1), nn.MSELoss()
    times = []
    for step in range(args.steps + 3):
        start = time.perf_counter()
        rule.zero_grad(set_to_none=True)
        loss(net(batches[step % 16]), scores).backward()
        rule.step()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print("ms_per_step", sorted(times[3:])[args.steps // 2] * 1e3, flush=True)
    if args.processes > 1:
        dist.destroy_process_group()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("rule", choices=("sgd", "adagrad"))
    flags.add_argument("--processes", type=int, default=1)
    flags.add_argument("--steps", type=int, default=50)
    args = flags.parse_args()
    if args.processes == 1:
        return run(0, args, 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return processes.spawn(run, (args, port), nprocs=args.processes)


if __name__ == "__main__":
    main()
