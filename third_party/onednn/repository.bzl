# SPDX-License-Identifier: Apache-2.0
# why      the fast convolutions and matrix products of a CPU; we write none
# home     https://github.com/oneapi-src/oneDNN
# licence  Apache-2.0
"""Where oneDNN is: the folder that CHORALE_ONEDNN names, with include/ and lib/, else Debian's libdnnl-dev."""

_HEADERS = ["dnnl.h", "dnnl.hpp", "oneapi/dnnl"]

_PATHS = """# Written by third_party/onednn/repository.bzl
LIBRARIES = "{folder}"
"""

def _onednn(ctx):
    folder = ctx.os.environ.get("CHORALE_ONEDNN", "")
    if folder and not folder.startswith("/"):
        fail("chorale: CHORALE_ONEDNN is {}, which is not an absolute path. Try: /home/you/onednn.".format(folder))
    needed = ["include/" + name for name in _HEADERS] + (["lib/libdnnl.so"] if folder else [])
    root = folder or ctx.attr.debian
    for name in needed:
        if not ctx.path(root + "/" + name).exists:
            fail("chorale: {}/{} is missing. Try: {}.".format(
                root,
                name,
                "another folder in CHORALE_ONEDNN, or unset it" if folder else "apt-get install --no-install-recommends libdnnl-dev",
            ))
    for name in _HEADERS:
        ctx.symlink(root + "/include/" + name, "include/" + name)
    ctx.symlink(ctx.attr.build_file, "BUILD")
    ctx.file("paths.bzl", _PATHS.format(folder = folder + "/lib" if folder else ""))

onednn_package = repository_rule(
    implementation = _onednn,
    attrs = {
        "build_file": attr.label(default = "//third_party/onednn:system.BUILD"),
        # Has include/, where Debian's package puts dnnl.hpp.
        "debian": attr.string(default = "/usr"),
    },
    environ = ["CHORALE_ONEDNN"],
    local = True,
)

def repository(name):
    onednn_package(name = name)
