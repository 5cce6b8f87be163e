# SPDX-License-Identifier: Apache-2.0
"""One measurement of a parameter server made with torch.distributed.rpc: two workers and servers on this host.

The server keeps a tensor. A push is one call that subtracts a gradient from it, a pull is one that returns it; rows are
added with index_add_ and read with index_select. Prints "microseconds N": per call of the slowest worker, all at once.
"""
import argparse
import os
import socket
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as processes

WORKERS, WIDTH, TABLE_ROWS, PUSHED_ROWS, DENSE = 2, 64, 200_000, 20_480, 16 << 20
held = {}


def empty():
    return None


def push_dense(gradient):
    held["dense"].add_(gradient, alpha=-0.01)


def pull_dense():
    return held["dense"]


def push_rows(index, gradient):
    held["table"].index_add_(0, index, gradient, alpha=-0.01)


def pull_rows(index):
    return held["table"].index_select(0, index)


def calls_of(case, worker, servers):
    """One call to each server."""
    part = DENSE // servers
    index = torch.randint(0, TABLE_ROWS, (PUSHED_ROWS // servers,), generator=torch.Generator().manual_seed(worker))
    rows = torch.zeros(len(index), WIDTH)
    function, arguments = {
        "empty": (empty, ()),
        "push_dense": (push_dense, (torch.zeros(part),)),
        "pull_dense": (pull_dense, ()),
        "push_rows": (push_rows, (index, rows)),
        "pull_rows": (pull_rows, (index,)),
    }[case]

    def once():
        waiting = [rpc.rpc_async(f"server{s}", function, args=arguments) for s in range(servers)]
        for future in waiting:
            future.wait()

    return once


def run(rank, options, port, results):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    world = WORKERS + options.servers
    name = f"worker{rank}" if rank < WORKERS else f"server{rank - WORKERS}"
    held["dense"], held["table"] = torch.zeros(DENSE // options.servers), torch.zeros(TABLE_ROWS, WIDTH)
    backend = rpc.TensorPipeRpcBackendOptions(_transports=options.transports.split(","), rpc_timeout=120)
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=backend)
    if rank < WORKERS:
        once = calls_of(options.case, rank, options.servers)
        for _ in range(options.calls // 4 + 1):
            once()
        start = time.monotonic()
        for _ in range(options.calls):
            once()
        results[rank] = (time.monotonic() - start) * 1e6 / options.calls
    rpc.shutdown()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("case")
    flags.add_argument("--transports", default="uv")
    flags.add_argument("--servers", type=int, default=1)
    flags.add_argument("--calls", type=int, default=10)
    options = flags.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = processes.Manager().dict()
    processes.spawn(run, (options, port, results), nprocs=WORKERS + options.servers)
    print("microseconds", max(results.values()))


if __name__ == "__main__":
    main()
