#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real processes under the environment of each way to start a job, as its files in tools/cluster describe it.

    environments_test.py ALL_REDUCE

All run in a network of their own, in which hosts have the names that the files give them. Each row is a job: its
processes find one another, and add up rank + 1. Then environments that cannot work: one sentence each, and exit code 2.
"""
import ctypes
import fcntl
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ALL_REDUCE = os.path.abspath(sys.argv[1])
FILES = pathlib.Path("tools/cluster").resolve()
SECRET = {"CHORALE_SECRET": "a secret of 32 bytes, of the test"}
NETWORK = "10.77.0."
SECONDS = 60
failed = False


def verdict(name, ok, text=""):
    global failed
    print(f"{'PASSED' if ok else 'FAILED'}: {name}", flush=True)
    if not ok:
        print(text, flush=True)
        failed = True


def skipped(name, why):
    print(f"SKIPPED: {name}: {why}", flush=True)


def in_a_network():
    """Starts this script again in a network and a tree of mounts of its own; False where that is not allowed."""
    for flags in (["--net", "--mount"], ["--user", "--map-root-user", "--net", "--mount"]):
        if shutil.which("unshare") and subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode == 0:
            os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv, "inside"])
    return False


class Hosts:
    """The names of hosts in this network, each with an address of this machine."""
    def __init__(self, folder):
        self.file = pathlib.Path(folder) / "hosts"
        self.file.write_text("127.0.0.1 localhost\n")
        subprocess.run(["mount", "--bind", self.file, "/etc/hosts"], check=True)
        self.count = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for i in range(16):                                  # lo, and lo:1 to lo:15 with addresses of their own
                name = f"lo:{i}".encode() if i else b"lo"
                if i:
                    address = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(f"{NETWORK}{i}"))
                    fcntl.ioctl(any_socket, 0x8916, address)     # SIOCSIFADDR
                else:
                    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", name, 1))   # SIOCSIFFLAGS, IFF_UP

    def named(self, *names):
        """Forgets all other names, and gives these an address each."""
        self.file.write_text("127.0.0.1 localhost\n" + "".join(
            f"{NETWORK}{i} {name} {name.split(':')[0]}\n" for i, name in enumerate(names, 1)))


def clean(env):
    return {"PATH": os.environ["PATH"], **env}


def as_host(name):
    """What a new process does to be on a host of this name."""
    def become():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x04000000) != 0:                        # CLONE_NEWUTS
            raise OSError(ctypes.get_errno(), "unshare")
        socket.sethostname(name)
    return become


def start(environments, hosts=()):
    return [subprocess.Popen([ALL_REDUCE], env=clean(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=as_host(hosts[i]) if hosts else None)
            for i, env in enumerate(environments)]


def end(processes):
    return [(*process.communicate(timeout=SECONDS), process.returncode) for process in processes]


def job(name, environments, says, hosts=(), beside=0, while_it_waits=None):
    """A row: these processes find one another. `says` is a part of what each prints; `beside` are no members."""
    processes = start(environments, hosts)
    if while_it_waits:
        while_it_waits(processes)
    ended = end(processes)
    text = "\n".join(out + err + f"exit code {code}" for out, err, code in ended)
    members = len(environments) - beside
    total = members * (members + 1) // 2
    summed = [out for out, _, code in ended if code == 0 and f"sum {total} and {members / 2:g}\n" in out]
    ranks = re.findall(r"rank (\d+) of", text)
    verdict(name, all(code == 0 and says in out for out, _, code in ended) and len(summed) == members
            and sorted(map(int, ranks)) == list(range(members)), text)


def refused(name, env, sentence):
    (out, err, code), = end(start([env]))
    lines = err.splitlines()
    verdict(f"refused: {name}", code == 2 and lines[:1] == [f"chorale: {sentence}"] and len(lines) == 2
            and lines[1].startswith("         Try: "), out + err + f"exit code {code}")


# Manifests.

def documents(file):
    """{kind: document} of a file, {"": document} where it has no kind; None without python3-yaml."""
    try:
        import yaml
    except ImportError:
        return None
    return {one.get("kind", ""): one for one in yaml.safe_load_all((FILES / file).read_text())}


def variables(container, pod_labels):
    """The environment of a container, as Kubernetes makes it."""
    env = {}
    for one in container.get("env", []):
        source = one.get("valueFrom", {})
        if "fieldRef" in source:
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", source["fieldRef"]["fieldPath"])[1]
            env[one["name"]] = pod_labels[label]
        elif "secretKeyRef" in source:
            env[one["name"]] = SECRET["CHORALE_SECRET"]
        else:
            env[one["name"]] = one["value"]
    return env


def indexed_job(hosts):
    found = documents("indexed_job.yaml")
    made, service = found["Job"], found["Service"]
    spec, name = made["spec"], made["metadata"]["name"]
    pod = spec["template"]["spec"]
    pods = [f"{name}-{i}.{pod['subdomain']}" for i in range(spec["completions"])]
    verdict("indexed_job.yaml: the service selects the pods", spec["parallelism"] == spec["completions"]
            and service["metadata"]["name"] == pod["subdomain"] and service["spec"]["clusterIP"] == "None"
            and service["spec"]["selector"] == {"job-name": name}, str(found))
    common = variables(pod["containers"][0], {"job-name": name})
    environments = [{**common, "JOB_COMPLETION_INDEX": str(i)} for i in range(len(pods))]
    hosts.named(*pods)
    job("Kubernetes, an Indexed Job", environments, "cluster: CHORALE_HOSTS, ")

    # Pods whose names the name server learns only after they have started.
    hosts.named()

    def learn(processes):
        seen = []

        def read(process):
            seen.append(process.stderr.readline())

        readers = [threading.Thread(target=read, args=(process,)) for process in processes]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(SECONDS)
        verdict("a rank whose name is not known says so", len(seen) == len(pods) and all(
            re.match(r"chorale: rank \d cannot listen on train-\d\.train:2222 yet: .* It asks again for 20 s$", line)
            for line in seen), "".join(seen))
        hosts.named(*pods)

    job("Kubernetes, names that come late", environments, "cluster: CHORALE_HOSTS, ", while_it_waits=learn)
    try:
        import kubernetes_validate
        for kind, document in found.items():
            try:
                kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
                verdict(f"indexed_job.yaml: the schema of a {kind}", True)
            except kubernetes_validate.ValidationError as error:
                verdict(f"indexed_job.yaml: the schema of a {kind}", False, str(error))
    except ImportError:
        skipped("indexed_job.yaml: the schema of Kubernetes", "the Python package kubernetes-validate is not installed")


def tf_job(hosts):
    """TF_CONFIG as training-operator 1.9 makes it."""
    made = documents("tfjob.yaml")["TFJob"]
    name, kinds = made["metadata"]["name"], made["spec"]["tfReplicaSpecs"]
    cluster = {kind.lower(): [f"{name}-{kind.lower()}-{i}.default.svc:2222" for i in range(spec["replicas"])]
               for kind, spec in kinds.items()}
    environments = []
    for kind, spec in kinds.items():
        container, = (c for c in spec["template"]["spec"]["containers"] if c["name"] == "tensorflow")
        environments += [{**variables(container, {}), "TF_CONFIG": json.dumps(
            {"cluster": cluster, "task": {"type": kind.lower(), "index": i}, "environment": "cloud"})}
            for i in range(spec["replicas"])]
    hosts.named(*(address.split(":")[0] for all_ in cluster.values() for address in all_))
    job("Kubeflow, a TFJob", environments, "cluster: TF_CONFIG, ")


def pytorch_job(hosts):
    """The variables of training-operator 1.9, and those of Trainer 2, which has PET_ alone."""
    made = documents("pytorchjob.yaml")["PyTorchJob"]
    name, kinds = made["metadata"]["name"], made["spec"]["pytorchReplicaSpecs"]
    names = [f"{name}-{kind.lower()}-{i}" for kind in ("Master", "Worker") for i in range(kinds[kind]["replicas"])]
    specs = [kinds[kind] for kind in ("Master", "Worker") for _ in range(kinds[kind]["replicas"])]
    hosts.named(*names)
    environments, trainer = [], []
    for rank, spec in enumerate(specs):
        container, = (c for c in spec["template"]["spec"]["containers"] if c["name"] == "pytorch")
        pet = {"PET_NNODES": str(len(names)), "PET_NODE_RANK": str(rank), "PET_MASTER_ADDR": names[0],
               "PET_MASTER_PORT": "23456", "PET_NPROC_PER_NODE": "auto"}
        trainer.append({**SECRET, **pet})
        environments.append({**variables(container, {}), **pet, "RANK": str(rank), "WORLD_SIZE": str(len(names)),
                             "MASTER_ADDR": names[0], "MASTER_PORT": "23456", "PYTHONUNBUFFERED": "1"})
    job("Kubeflow, a PyTorchJob", environments, "ranks meet at train-master-0:23457")
    job("Kubeflow's Trainer 2", trainer, "cluster: Kubeflow, ")


def vertex(hosts):
    pools = documents("vertex.yaml")[""]["workerPoolSpecs"]
    cluster = {f"workerpool{n}": [f"cmle-training-workerpool{n}-ab-{i}:2222" for i in range(pool["replicaCount"])]
               for n, pool in enumerate(pools)}
    hosts.named(*(address.split(":")[0] for all_ in cluster.values() for address in all_))
    roles = {f"workerpool{n}": role for n, role in enumerate(("chief", "worker", "ps", "evaluator"))}
    environments, both = [], []
    for pool, addresses in cluster.items():
        for i in range(len(addresses)):
            task = {"type": pool, "index": i, "trial": ""}
            environments.append({**SECRET, "CLUSTER_SPEC": json.dumps(
                {"cluster": cluster, "task": task, "environment": "cloud", "job": "{\"x\": 1}"})})
            both.append({**environments[-1], "TF_CONFIG": json.dumps(
                {"cluster": {roles[p]: a for p, a in cluster.items()}, "task": {**task, "type": roles[pool]}})})
    job("Vertex AI", environments, "cluster: CLUSTER_SPEC, ")
    job("Vertex AI with TF_CONFIG", both, "cluster: TF_CONFIG, ")
    given = {e["name"]: e["value"] for e in pools[0]["containerSpec"]["env"]}
    refused("vertex.yaml before a secret is written into it", {**environments[0], **given},
            "CHORALE_SECRET has 3 bytes, and a secret has 16 to 4096.")


def sagemaker(hosts, folder):
    made = json.loads((FILES / "sagemaker.json").read_text())
    names = [f"algo-{i}" for i in range(1, made["ResourceConfig"]["InstanceCount"] + 1)]
    hosts.named(*names)
    common = {**SECRET, "TRAINING_JOB_NAME": made["TrainingJobName"]}
    job("SageMaker's toolkit", [{**common, "SM_HOSTS": json.dumps(names), "SM_CURRENT_HOST": name} for name in names],
        "cluster: SageMaker, ")
    environments = []
    for name in names:
        config = pathlib.Path(folder) / name / "input/config"
        config.mkdir(parents=True)
        (config / "resourceconfig.json").write_text(json.dumps(
            {"current_host": name, "hosts": names, "network_interface_name": "eth0"}))
        environments.append({**common, "SAGEMAKER_BASE_DIR": f"{folder}/{name}"})
    job("SageMaker, a container of one's own", environments, "cluster: SageMaker, ")


# What is no manifest.

def tpu(hosts):
    names = [f"t-{i}.tpu" for i in range(2)]
    hosts.named(*names)
    one = [{**SECRET, "TPU_WORKER_HOSTNAMES": ",".join(names), "TPU_WORKER_ID": str(i), "TPU_ACCELERATOR_TYPE": "v4-16"}
           for i in range(2)]
    job("hosts of a slice of TPUs", one, "cluster: TPU, ")
    slices = [[f"s{s}-{i}.tpu" for i in range(2)] for s in range(2)]
    hosts.named(*slices[0], *slices[1])
    job("hosts of two slices of TPUs", [
        {**SECRET, "TPU_WORKER_HOSTNAMES": ",".join(slices[s]), "TPU_WORKER_ID": str(i), "MEGASCALE_NUM_SLICES": "2",
         "MEGASCALE_SLICE_ID": str(s), "MEGASCALE_COORDINATOR_ADDRESS": f"{slices[0][0]}:8081"}
        for s in range(2) for i in range(2)], "cluster: TPU, ")


def own_variables(hosts, folder):
    hosts.named("node1", "node2", "node3")
    cluster = json.dumps({"worker": ["node1:4400", "node2:4400"], "evaluator": ["node3:4400"]})
    job("CHORALE_CLUSTER", [{**SECRET, "CHORALE_CLUSTER": cluster, "CHORALE_TASK": task}
                            for task in ("worker:0", "worker:1", "evaluator:0")], "cluster: CHORALE_CLUSTER, ",
        beside=1)
    file = pathlib.Path(folder) / "hosts.txt"
    file.write_text("# two hosts\nnode1 slots=2\nnode2:4400    # the third\n")
    job("a hosts file", [{**SECRET, "CHORALE_HOSTS_FILE": str(file), "CHORALE_TASK": f"worker:{i}"} for i in range(3)],
        "cluster: CHORALE_HOSTS_FILE, ")
    mpi = [{**SECRET, "CHORALE_HOSTS_FILE": str(file), "OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_SIZE": "3",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(i % 2), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"} for i in range(3)]
    job("mpirun with a hosts file", mpi, "cluster: CHORALE_HOSTS_FILE, ")
    same = [{**SECRET, "CHORALE_HOSTS": "node[1-3]"}] * 3
    job("one command on each host, as on Compute Engine", same, "cluster: CHORALE_HOSTS, ",
        hosts=("node1", "node2.c.project.internal", "NODE3"))
    # Debian writes 127.0.1.1 for a host's own name; the others know its address.
    hosts.file.write_text("127.0.1.1 node1\n" + f"{NETWORK}2 node2\n")
    alone = start([{**SECRET, "CHORALE_HOSTS": "node[1-2]", "CHORALE_TASK": "worker:0", "CHORALE_PORT": "4400"}])

    def listens():
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{4400:04X}")]

    wait_for(listens)
    verdict("a host that calls itself 127.0.1.1 listens where others can reach it", listens() == ["00000000:1130"],
            str(listens()))
    alone[0].kill()
    end(alone)
    hosts.file.write_text("127.0.0.1 localhost localhost.localdomain\n" + f"{NETWORK}2 node2\n")
    alone = start([{**SECRET, "CHORALE_CLUSTER": '{"worker": ["localhost.localdomain:4400", "node2:4400"]}',
                    "CHORALE_TASK": "worker:0"}])
    wait_for(listens)
    verdict("a host that calls itself localhost listens there alone", listens() == ["0100007F:1130"], str(listens()))
    alone[0].kill()
    end(alone)


def torchrun(hosts):
    hosts.named("a", "b")
    job("torchrun on two nodes", [{**SECRET, "RANK": str(i), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                                   "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(i), "GROUP_WORLD_SIZE": "2",
                                   "MASTER_ADDR": "a", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "1"}
                                  for i in range(2)], "ranks meet at a:29501")


def slurm(hosts, folder):
    """A controller and two nodes, here: sbatch of tools/cluster/train.sbatch."""
    name = "Slurm: tools/cluster/train.sbatch on two nodes"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    tools = ("slurmctld", "slurmd", "sbatch", "srun", "munged")
    missing = [tool for tool in tools if not shutil.which(tool, path=path)]
    if missing:
        return skipped(name, f"no {', '.join(missing)}: Debian's slurm-wlm and munge are not installed")
    if not can_be_others():
        return skipped(name, "slurmd takes the groups of its jobs' user, which only root may")
    me, here = pwd.getpwuid(os.geteuid()).pw_name, socket.gethostname().split(".")[0]
    at = pathlib.Path(folder) / "slurm"
    for part in ("", "state", "job"):
        (at / part).mkdir(mode=0o700, exist_ok=True)
    at.parent.chmod(0o755)
    (at / "munge.key").write_bytes(os.urandom(1024))
    (at / "munge.key").chmod(0o400)
    hosts.named("n1", "n2")
    with hosts.file.open("a") as file:
        file.write(f"127.0.0.1 {here}\n")
    (at / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={here}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser={me}
SlurmdUser={me}
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool-%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd-%n.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={here} NodeAddr={NETWORK}1 Port=6820 CPUs=2
NodeName=n2 NodeHostname={here} NodeAddr={NETWORK}2 Port=6821 CPUs=2
PartitionName=all Nodes=ALL Default=YES
""")
    env = {"PATH": path, "SLURM_CONF": str(at / "slurm.conf"), "HOME": str(at)}
    daemons = []

    def daemon(*command):
        log = (at / "daemons.log").open("ab")
        daemons.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        log.close()

    def ask(*command):
        return subprocess.run(command, env=env, cwd=at / "job", capture_output=True, text=True, timeout=4 * SECONDS)

    def logs():
        return "".join(f"{log}\n{log.read_text(errors='replace')[-3000:]}\n" for log in at.rglob("*.log"))

    try:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        daemon("munged", "--foreground", "--force", *(f"--{what}={at}/munge.{is_}" for what, is_ in files.items()))
        wait_for(lambda: (at / "munge.socket").exists())
        daemon("slurmctld", "-D", "-i")
        daemon("slurmd", "-D", "-N", "n1")
        daemon("slurmd", "-D", "-N", "n2")
        if not wait_for(lambda: ask("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"]):
            return verdict(name, False, "the nodes do not become idle\n" + logs())
        done = ask("sbatch", "--wait", FILES / "train.sbatch", ALL_REDUCE)
        text = "".join(log.read_text() for log in (at / "job").glob("*.log"))
        hosts_seen = re.findall(r"cluster: Slurm, rank (\d) of 2 on (n\d) \(local 0 of 1\), master n1:20001", text)
        left = [file.name for file in (at / "job").iterdir() if file.suffix != ".log"]
        verdict(name, done.returncode == 0 and sorted(hosts_seen) == [("0", "n1"), ("1", "n2")]
                and text.count("sum 3 and 1\n") == 2 and not left, done.stderr + text + str(left) + logs())

        # The task that is left ends as one does that lost a peer, or by the signal of srun: both are above 127.
        script = '[ "$SLURM_PROCID" = 0 ] && exit 3; trap "exit 138" TERM; sleep 30 & wait'
        done = ask("sbatch", "--wait", "--job-name=mistake", FILES / "train.sbatch", "sh", "-c", script)
        text = "".join(log.read_text() for log in (at / "job").glob("mistake-*.log"))
        left = [file.name for file in (at / "job").iterdir() if file.suffix != ".log"]
        verdict("Slurm: a job with a mistake is not queued again",
                done.returncode == 3 and "queued again" not in text and not left, done.stderr + text + str(left) + logs())

        again = "Slurm: a job that lost a peer is queued again"
        if os.environ.get("CHORALE_SLOW"):
            # The first start loses a peer; the second, which Slurm makes half a minute later, finds all.
            script = 'test "${SLURM_RESTART_COUNT:-0}" = 1 || exit 138; exec "$0"'
            done = ask("sbatch", "--wait", "--job-name=again", FILES / "train.sbatch", "sh", "-c", script, ALL_REDUCE)
            text = "".join(log.read_text() for log in (at / "job").glob("again-*.log"))
            verdict(again, done.returncode == 0 and text.count("exit code 138, the job is queued again") == 1
                    and text.count("sum 3 and 1\n") == 2, done.stderr + text + logs())
        else:
            skipped(again, "it takes a minute: tools/test --slow")
        bad = ask("srun", "-n2", "-N2", "--distribution=cyclic", "env", "CHORALE_PORT=99999", ALL_REDUCE)
        verdict("refused: srun with a port that is none", bad.returncode == 2 and
                "chorale: CHORALE_PORT is \"99999\", and must be a number from 1 to 65535." in bad.stderr, bad.stderr)
    finally:
        for one in reversed(daemons):
            one.terminate()
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


def can_be_others():
    return subprocess.run([sys.executable, "-c", "import os; os.setgroups([])"], capture_output=True).returncode == 0


def wait_for(holds, seconds=30):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.1)
    return False


def bad_environments(folder):
    file = pathlib.Path(folder) / "bad.txt"
    file.write_text("node1\nnode2 slots=none\n")
    for name, env, sentence in (
        ("an index of Kubernetes alone", {"JOB_COMPLETION_INDEX": "1"},
         "Kubernetes: JOB_COMPLETION_INDEX=1 is set without CHORALE_HOSTS, so that nobody knows where the other pods "
         "are."),
        ("an index above the hosts", {"JOB_COMPLETION_INDEX": "4", "CHORALE_HOSTS": "train-[0-3].train"},
         "CHORALE_HOSTS: JOB_COMPLETION_INDEX is 4, but there are 4 workers."),
        ("a list of hosts that ends early", {"CHORALE_HOSTS": "train-[0-"},
         'CHORALE_HOSTS: "train-[0-", character 10: a number is needed here.'),
        ("a hosts file that is not there", {"CHORALE_HOSTS_FILE": "/no/file"},
         'CHORALE_HOSTS_FILE: /no/file: cannot be opened: No such file or directory.'),
        ("a line of a hosts file", {"CHORALE_HOSTS_FILE": str(file)},
         f'CHORALE_HOSTS_FILE: {file}, line 2: after the host there may be slots= and a number from 1 on, and not '
         '"slots=none".'),
        ("hosts twice", {"CHORALE_HOSTS_FILE": str(file), "CHORALE_HOSTS": "a"},
         "CHORALE_HOSTS and CHORALE_HOSTS_FILE are both set."),
        ("SM_HOSTS alone", {"SM_HOSTS": '["algo-1", "algo-2"]'}, "SageMaker: SM_HOSTS is set without SM_CURRENT_HOST."),
        ("a host that is not one of them", {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-3"},
         'SageMaker: this host is "algo-3", which is not one of 2 hosts.'),
        ("SM_HOSTS that is no JSON", {"SM_HOSTS": "[algo-1]", "SM_CURRENT_HOST": "algo-1"},
         "SM_HOSTS: it is not JSON from byte 2 on."),
        ("a pool that Vertex AI does not have",
         {"CLUSTER_SPEC": '{"cluster": {"workerpool4": ["a:1"]}, "task": {"type": "workerpool4", "index": 0}}'},
         'CLUSTER_SPEC: cluster."workerpool4" is no role.'),
        ("a host of TPUs beyond the last", {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "2"},
         "TPU: TPU_WORKER_ID is 2, and TPU_WORKER_HOSTNAMES has 2 hosts."),
        ("a TPU behind a server", {"COLAB_TPU_ADDR": "10.1.2.3:8470"},
         "TPU: COLAB_TPU_ADDR=10.1.2.3:8470 names a TPU behind a server of its own, which PJRT cannot use."),
        ("an elastic PET_NNODES", {"PET_NNODES": "1:4", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "a"},
         'PET_NNODES is "1:4", and must be a number from 1 to 65536.'),
    ):
        refused(name, env, sentence)


def dockerfile():
    text = (FILES / "Dockerfile").read_text()
    tool = shutil.which("hadolint")
    if not tool:
        return skipped("hadolint Dockerfile", "hadolint is not installed")
    done = subprocess.run([tool, "-"], input=text, capture_output=True, text=True)
    verdict("hadolint Dockerfile", done.returncode == 0, done.stdout + done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        bad_environments(folder)
        dockerfile()
        hosts = Hosts(folder)
        own_variables(hosts, folder)
        torchrun(hosts)
        sagemaker(hosts, folder)
        tpu(hosts)
        if documents("vertex.yaml") is None:
            skipped("the manifests of Kubernetes, Kubeflow and Vertex AI", "python3-yaml is not installed")
        else:
            for row in (indexed_job, tf_job, pytorch_job, vertex):
                row(hosts)
        slurm(hosts, folder)
    return 1 if failed else 0


if sys.argv[-1] != "inside" and not in_a_network():
    skipped("processes on hosts with names", "unshare may not make a network here")
    with tempfile.TemporaryDirectory() as one:
        bad_environments(one)
        dockerfile()
    sys.exit(1 if failed else 0)
sys.exit(main())
