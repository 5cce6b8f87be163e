# SPDX-License-Identifier: Apache-2.0
# why      an optional peer: bench/training trains the same network with it, where libtorch-dev is installed
# home     https://pytorch.org
# licence  BSD-3-Clause
def _libtorch(ctx):
    found = ctx.path("/usr/include/torch/csrc/api/include/torch/torch.h").exists
    if found:
        ctx.symlink("/usr/include/torch/csrc/api/include", "include")
    ctx.symlink(ctx.attr.found if found else ctx.attr.absent, "BUILD")

_optional_libtorch = repository_rule(
    implementation = _libtorch,
    attrs = {"absent": attr.label(), "found": attr.label()},
    local = True,
)

def repository(name):
    _optional_libtorch(
        name = name,
        absent = Label("//third_party/libtorch:absent.BUILD"),
        found = Label("//third_party/libtorch:system.BUILD"),
    )
