#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M under PyTorch's FSDP2 on processes of one thread, over gloo: prints "ms_per_step N megabytes M", the slowest
rank's median and the most by which memory has grown.

Each block is a unit of fully_shard, and so is the rest; a fused AdamW, subnormal numbers flushed, gradients set to None."""
import argparse
import os
import resource
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from models_torch_peer import Gpt2


def resident():
    return int(open("/proc/self/statm", encoding="ascii").read().split()[1]) * resource.getpagesize() / 2**20


def work(rank, args, port, results):
    cores = sorted(os.sched_getaffinity(0))
    if args.ranks <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(args.ranks))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    before = resident()
    model  = Gpt2(recompute=False)
    mesh   = init_device_mesh("cpu", (args.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    rule = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, eps=1e-8, fused=True)
    rows = 4 // args.ranks
    text = torch.randint(0, 50257, (rows, 64))
    following = torch.randint(0, 50257, (rows, 64))
    times = []
    for step in range(args.steps + 1):
        dist.barrier()
        start = time.perf_counter()
        model(text, following).backward()
        rule.step()
        rule.zero_grad(set_to_none=True)
        if step > 0:
            times.append(time.perf_counter() - start)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    results.put((sorted(times)[len(times) // 2] * 1e3, most - before))
    dist.barrier()
    dist.destroy_process_group()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--ranks", type=int, required=True)
    flags.add_argument("--steps", type=int, required=True)
    args = flags.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = processes.get_context("spawn").SimpleQueue()
    processes.spawn(work, (args, port, results), nprocs=args.ranks, join=True)
    all_ranks = [results.get() for _ in range(args.ranks)]
    print("ms_per_step", max(ms for ms, _ in all_ranks), "megabytes", max(size for _, size in all_ranks), flush=True)


if __name__ == "__main__":
    main()
