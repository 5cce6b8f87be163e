# SPDX-License-Identifier: Apache-2.0
"""The dependencies for MODULE.bazel. Bazel 4, which has no module_extension, does not load this file."""

load("//third_party:repositories.bzl", "ALL")

def _system(_ctx):
    for name in ALL:
        ALL[name](name)

system = module_extension(implementation = _system)
