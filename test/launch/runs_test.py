#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One binary, started as people start jobs: tools/launch, mpirun, torchrun, TF_CONFIG; and with servers.

    runs_test.py LAUNCH MULTI_WORKER PARAMETER_SERVER
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

launch, multi_worker, parameter_server = (os.path.abspath(p) for p in sys.argv[1:4])
FLAGS = ["--epochs", "1", "--rows", "640"]
failed = False


def environment(more=()):
    names = ("TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    env = {k: v for k, v in os.environ.items() if k not in names and not k.startswith(("CHORALE_", "OMPI_", "SLURM_"))}
    return {**env, **dict(more)}


def free_ports(n):
    """As the launcher finds them: torchrun takes seconds until somebody listens."""
    loader = importlib.machinery.SourceFileLoader("launch", launch)
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("launch", loader))
    loader.exec_module(module)
    return [int(address.split(":")[1]) for address in module.addresses(n, None)]


def run(command, env=None):
    done = subprocess.run(command, env=env or environment(), capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def verdict(name, ok, text):
    global failed
    print(f"{'PASSED' if ok else 'FAILED'}: {name}")
    if not ok:
        print(text)
        failed = True


def results(text):
    """What each worker said of the test: they must be the same."""
    return re.findall(r"test: loss ([0-9.]+) accuracy ([0-9.]+) \((\d+) images\)", text)


def workers_agree(text, n):
    return len(results(text)) == n and len(set(results(text))) == 1


def by_launch():
    rc, text = run([launch, "-n", "2", "--", multi_worker, *FLAGS])
    verdict("tools/launch -n 2", rc == 0 and workers_agree(text, 2) and "[w1]" in text, text)
    rc, text = run([launch, "-n", "2", "--ps", "2", "--", parameter_server, *FLAGS])
    served = re.findall(r"server (\d) of 2: (\d+) updates, 0 dropped, 0 workers lost; staleness", text)
    verdict("tools/launch -n 2 --ps 2",
            rc == 0 and workers_agree(text, 2) and sorted(served) == [("0", "20"), ("1", "20")], text)
    rc, text = run([launch, "-n", "1", "--ps", "1", "--", multi_worker, *FLAGS])
    verdict("a strategy without a use for servers says so, and exits with 2",
            rc == 2 and "cannot use the 1 parameter servers" in text, text)


def by_tf_config():
    ports = free_ports(2)
    cluster = {"worker": [f"localhost:{p}" for p in ports]}
    started = [subprocess.Popen([multi_worker, *FLAGS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=environment({"TF_CONFIG": json.dumps({"cluster": cluster,
                                                                         "task": {"type": "worker", "index": i}})}))
               for i in range(2)]
    text = "".join(p.communicate(timeout=120)[0] for p in started)
    verdict("TF_CONFIG", all(p.returncode == 0 for p in started) and workers_agree(text, 2), text)


def by_mpirun():
    if not shutil.which("mpirun") or "Open MPI" not in run(["mpirun", "--version"])[1]:
        return print("SKIPPED: mpirun: there is no mpirun of Open MPI")
    command = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    rc, text = run(command + [multi_worker, *FLAGS])
    verdict("mpirun -n 2", rc == 0 and workers_agree(text, 2) and "cluster: Open MPI" in text, text)


def by_torchrun():
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode != 0:
        return print("SKIPPED: torchrun: Debian's python3-torch is not installed")
    def torchrun(logs, *flags):
        return run([python, "-m", "torch.distributed.run", "--no_python", "--nproc_per_node", "2", "--master_port",
                    str(free_ports(1)[0]), "-r", "1", "-t", "1", "--log_dir", logs, multi_worker, *flags])

    with tempfile.TemporaryDirectory() as logs:
        rc, text = torchrun(logs, *FLAGS)
        logged = "".join(p.read_text() for p in pathlib.Path(logs).rglob("stdout.log"))
    verdict("torchrun", rc == 0 and workers_agree(logged, 2) and "cluster: torchrun" in logged, text + logged)
    with tempfile.TemporaryDirectory() as logs:
        rc, text = torchrun(logs, "--data", "/nowhere")
    cause = text[text.find("Root Cause"):]
    verdict("torchrun tells why", rc != 0 and "Root Cause" in text and "/nowhere" in cause, text)

    # Two nodes, as far as the ranks can tell: each agent has one of them.
    port = str(free_ports(1)[0])
    with tempfile.TemporaryDirectory() as logs:
        nodes = [subprocess.Popen([python, "-m", "torch.distributed.run", "--no_python", "--nnodes", "2", "--node_rank",
                                   str(node), "--nproc_per_node", "1", "--master_addr", "127.0.0.1", "--master_port",
                                   port, "-r", "1", "-t", "1", "--log_dir", f"{logs}/{node}", multi_worker, *FLAGS],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
                 for node in range(2)]
        text = "".join(node.communicate(timeout=120)[0] for node in nodes)
        logged = "".join(p.read_text() for p in pathlib.Path(logs).rglob("stdout.log"))
    verdict("torchrun on two nodes", all(node.returncode == 0 for node in nodes) and workers_agree(logged, 2)
            and "ranks meet at 127.0.0.1:" in logged, text + logged)


for way in (by_launch, by_tf_config, by_mpirun, by_torchrun):
    way()
sys.exit(1 if failed else 0)
