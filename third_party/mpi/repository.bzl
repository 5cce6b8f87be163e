# SPDX-License-Identifier: Apache-2.0
# why      optional: MpiTransport, and a peer of bench/reduce, where libopenmpi-dev is installed
# home     https://www.open-mpi.org
# licence  BSD-3-Clause
_FOLDERS = [
    "/usr/lib/x86_64-linux-gnu/openmpi/include",
    "/usr/lib/aarch64-linux-gnu/openmpi/include",
]

def _mpi(ctx):
    found = [folder for folder in _FOLDERS if ctx.path(folder + "/mpi.h").exists]
    if found:
        ctx.symlink(found[0], "include")
    ctx.symlink(ctx.attr.found if found else ctx.attr.absent, "BUILD")

_optional_mpi = repository_rule(
    implementation = _mpi,
    attrs = {"absent": attr.label(), "found": attr.label()},
    local = True,
)

def repository(name):
    _optional_mpi(
        name = name,
        absent = Label("//third_party/mpi:absent.BUILD"),
        found = Label("//third_party/mpi:system.BUILD"),
    )
