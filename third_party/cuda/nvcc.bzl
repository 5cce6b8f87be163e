# SPDX-License-Identifier: Apache-2.0
"""Libraries of CUDA code."""

load("@cuda//:toolkit.bzl", "HOME")
load("@rules_cc//cc:defs.bzl", "cc_library")

def _object_impl(ctx):
    context = depset(transitive = [d[CcInfo].compilation_context.headers for d in ctx.attr.deps])
    root = ctx.label.workspace_root
    folders = [(root + "/" if root else "") + f for f in ctx.attr.includes]
    for d in ctx.attr.deps:
        c = d[CcInfo].compilation_context
        folders += c.includes.to_list() + c.quote_includes.to_list() + c.system_includes.to_list()
    out = ctx.actions.declare_file(ctx.label.name + ".o")
    ctx.actions.run_shell(
        inputs = depset([ctx.file.src], transitive = [context]),
        outputs = [out],
        command = ("[ -x {home}/bin/nvcc ] || {{ echo 'chorale: there is no nvcc in {home}/bin. Try: to set CUDA_HOME to " +
                   "a toolkit that has it.' >&2; exit 1; }}; PATH=$PATH:{home}/bin {home}/bin/nvcc -c -O3 -std=c++20 " +
                   "-arch={arch} --extended-lambda --expt-relaxed-constexpr {folders} {src} -o {out}").format(
            arch = ctx.attr.arch,
            folders = " ".join(["-I" + f for f in folders]),
            home = HOME,
            out = out.path,
            src = ctx.file.src.path,
        ),
        mnemonic = "Nvcc",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

_object = rule(
    implementation = _object_impl,
    attrs = {
        "arch": attr.string(),
        "deps": attr.label_list(providers = [CcInfo]),
        "includes": attr.string_list(),
        "src": attr.label(allow_single_file = [".cu"]),
    },
)

def cuda_library(name, src, arch = "sm_90", deps = [], includes = [], **kwargs):
    """A cc_library of one .cu file, which nvcc compiles. Built only where a target asks for it.

    arch: of the GPUs, as nvcc's -arch has it. includes: folders of this workspace, for nvcc alone"""
    _object(name = name + "_object", arch = arch, deps = deps, includes = includes, src = src, tags = ["manual"])
    cc_library(name = name, srcs = [name + "_object"], deps = deps, tags = ["manual"], **kwargs)
