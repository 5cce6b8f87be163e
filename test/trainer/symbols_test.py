#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The object of a step has none of the parts that its program does not use; no class of the library but exceptions has
virtual functions or type information in it, and no part of the step is behind a std::function."""
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = "test/trainer/step_symbols.cpp"
FLAGS = ["-std=c++20", "-O1", "-march=x86-64-v3", "-fno-math-errno"]

# Names of parts that the program names nowhere.
UNUSED = ["Tcp", "SharedMemory", "Simulated", "Faulty", "parameter_server", "Coordinator", "TopK", "Compressed",
          "Reproducible", "DoubleTree", "HalvingDoubling", "LocalSgd", "Gossip", "CentralStorage", "Sharded", "Pipeline",
          "MeshReplica", "safetensors", "Checkpoints", "TensorBoard", "Prometheus", "Adam", "Conv2D", "Embedding"]
USED = ["RingAllReduce", "LocalEndpoint", "SGD", "MirroredStrategy"]     # the counterpart: these are seen
# Classes whose tables of virtual functions and type information may be there.
OF_ERRORS = re.compile(r"chorale::(detail::)?\w*(Error|Argument|File|Fault|Lost|Disagreement|Memory|Descriptors|Preempted|"
                       r"Consequence)\b")


def symbols(compiler):
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/step.o"
        subprocess.run([compiler, *FLAGS, "-Iinclude", "-I.", "-c", SOURCE, "-o", made], check=True)
        listed = subprocess.run(["nm", "--demangle", "--defined-only", made], capture_output=True, text=True, check=True)
    return [line.split(" ", 2)[2] for line in listed.stdout.splitlines()]


def check(what, found):
    print(f"{'FAILED' if found else 'PASSED'}: {what}" + "".join(f"\n    {name[:200]}" for name in found[:5]))
    return bool(found)


def main():
    compiler = "g++"
    if not shutil.which(compiler) or not shutil.which("nm"):
        print(f"SKIPPED: there is no {compiler} or nm")
        return False
    names = symbols(compiler)
    ours = [name for name in names if "chorale::" in name]
    failed = check("the object has the step", [] if "one_step" in names and len(ours) > 50 else ["one_step is missing"])
    for part in UNUSED:
        failed |= check(f"no {part}", [name for name in ours if re.search(rf"\b{part}", name)])
    for part in USED:
        failed |= check(f"{part} is there", [] if any(re.search(rf"\b{part}\b", name) for name in ours) else [part])
    virtual = [name for name in names
               if re.match(r"(vtable|typeinfo|typeinfo name|VTT) for (chorale::|\(anonymous namespace\))", name)]
    failed |= check("virtual functions and type information are of exceptions alone",
                    [name for name in virtual if not OF_ERRORS.search(name)])
    failed |= check("no std::function in the step", [name for name in ours if "std::function" in name
                                                     and re.search(r"Net|GradientReducer|Bucketed|ScheduleExecution", name)])
    return failed


sys.exit(main())
