# SPDX-License-Identifier: Apache-2.0
# why      optional: models of libtorch, and a peer of bench/training
# home     https://pytorch.org
# licence  BSD-3-Clause
"""Where libtorch is: the folder that CHORALE_LIBTORCH names, else the torch package of CHORALE_PYTHON or python3, else
Debian's libtorch-dev. Of the first two only some folders of headers are linked: the others are of libraries that
libtorch contains, and would hide those of the system, such as oneDNN's."""

_HEADERS = ["ATen", "c10", "caffe2", "torch"]

_HEADER = "/include/torch/csrc/api/include/torch/torch.h"

_FIND = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin.rsplit('/', 1)[0] if s and s.origin else '')"

_PATHS = """# Written by third_party/libtorch/repository.bzl
FOLDER = "{folder}"
OLD_ABI = {old_abi}
"""

def _package_of(ctx, interpreter):
    """The torch package of a Python, if it has headers: Debian's has none."""
    python = ctx.path(interpreter) if "/" in interpreter else ctx.which(interpreter)
    found = ctx.execute([python, "-c", _FIND]) if python and python.exists else None
    folder = found.stdout.strip() if found and found.return_code == 0 else ""
    return folder if folder and ctx.path(folder + _HEADER).exists else ""

def _libtorch(ctx):
    folder = ctx.os.environ.get("CHORALE_LIBTORCH", "")
    if folder and not ctx.path(folder + _HEADER).exists:
        fail("chorale: CHORALE_LIBTORCH is {}, which has no {}. ".format(folder, _HEADER[1:]) +
             "Try: the folder of a libtorch, such as site-packages/torch, or unset it.")
    interpreters = ctx.os.environ.get("CHORALE_PYTHON", "python3").split(":") if ctx.attr.asks_python else []
    for interpreter in interpreters:
        folder = folder or _package_of(ctx, interpreter)
    for name in _HEADERS if folder else []:
        ctx.symlink(folder + "/include/" + name, "package/" + name)
    config = folder + "/share/cmake/Torch/TorchConfig.cmake"
    old_abi = folder and ctx.path(config).exists and "_GLIBCXX_USE_CXX11_ABI=0" in ctx.read(config)
    ctx.symlink(ctx.attr.debian, "include")
    ctx.symlink(ctx.attr.build_file, "BUILD")
    ctx.file("paths.bzl", _PATHS.format(folder = folder, old_abi = bool(old_abi)))

libtorch_package = repository_rule(
    implementation = _libtorch,
    attrs = {
        "build_file": attr.label(default = "//third_party/libtorch:system.BUILD"),
        # Where Debian's package puts torch/torch.h. Whether it is there is asked by glob(): see optional_package.
        "debian": attr.string(default = "/usr/include/torch/csrc/api/include"),
        "asks_python": attr.bool(default = True),
    },
    environ = ["CHORALE_LIBTORCH", "CHORALE_PYTHON"],
    local = True,
)

def repository(name):
    libtorch_package(name = name)
