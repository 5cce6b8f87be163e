# SPDX-License-Identifier: Apache-2.0
# why      an optional peer: bench/reduce reduces the same buffers with it, where libgloo-dev is installed
# home     https://github.com/facebookincubator/gloo
# licence  BSD-3-Clause
def _gloo(ctx):
    found = ctx.path("/usr/include/gloo/allreduce.h").exists
    if found:
        ctx.symlink("/usr/include/gloo", "include/gloo")
    ctx.symlink(ctx.attr.found if found else ctx.attr.absent, "BUILD")

_optional_gloo = repository_rule(
    implementation = _gloo,
    attrs = {"absent": attr.label(), "found": attr.label()},
    local = True,
)

def repository(name):
    _optional_gloo(
        name = name,
        absent = Label("//third_party/gloo:absent.BUILD"),
        found = Label("//third_party/gloo:system.BUILD"),
    )
