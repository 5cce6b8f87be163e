# SPDX-License-Identifier: Apache-2.0
# why      NVIDIA devices: memory and queues (cudart), products (cublasLt), convolutions (cudnn), collectives (nccl)
# home     https://developer.nvidia.com/cuda-toolkit, https://developer.nvidia.com/cudnn, https://github.com/NVIDIA/nccl
# licence  CUDA EULA; cuDNN: its own; NCCL: BSD-3-Clause
_MISSING = ("chorale: {what} is not in {home}. " +
            "Try: set CUDA_HOME to a toolkit that has it, or build without --config=cuda.")

_FOUND = """
cc_library(
    name = "{name}",
    hdrs = [":headers"],
    includes = ["include"],
    linkopts = ["-L{home}/lib64", "-Wl,-rpath,{home}/lib64", "-l{name}"],
    visibility = ["//visibility:public"],
)
"""

# Only the target that asks for it sees the sentence: a select without a branch is an error of one line.
_ABSENT = """
config_setting(name = "no_{name}", define_values = {{"chorale": "never"}})

cc_library(
    name = "{name}",
    visibility = ["//visibility:public"],
    deps = select({{":no_{name}": []}}, no_match_error = "{sentence}"),
)
"""

def _cuda(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    include = ctx.path(home + "/include")
    if include.exists:
        ctx.symlink(include, "include")
    build = "# Written by third_party/cuda/repository.bzl\n"
    build += 'load("@rules_cc//cc:defs.bzl", "cc_library")\n'
    build += 'filegroup(name = "headers", srcs = glob(["include/*.h", "include/*.hpp", "include/crt/**"]))\n'
    for name, header in ctx.attr.parts.items():
        if ctx.path(home + "/include/" + header).exists:
            build += _FOUND.format(name = name, home = home)
        else:
            build += _ABSENT.format(name = name, sentence = _MISSING.format(what = header, home = home))
    needed = ["bin/nvcc"] + ["include/" + header for header in ctx.attr.parts.values()]
    complete = all([ctx.path(home + "/" + file).exists for file in needed])
    ctx.file("BUILD", build)
    ctx.file("toolkit.bzl", "HOME = \"%s\"\nIS_COMPLETE = %s\n" % (home, complete))

_cuda_toolkit = repository_rule(
    implementation = _cuda,
    attrs = {"parts": attr.string_dict()},
    environ = ["CUDA_HOME"],
    local = True,
)

def repository(name):
    _cuda_toolkit(
        name = name,
        parts = {
            "cublasLt": "cublasLt.h",
            "cudart": "cuda_runtime_api.h",
            "cudnn": "cudnn.h",
            "nccl": "nccl.h",
        },
    )
