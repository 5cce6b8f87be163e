# SPDX-License-Identifier: Apache-2.0
# why      an optional peer: bench/training trains the same network with it, where libtorch-dev is installed
# home     https://pytorch.org
# licence  BSD-3-Clause
load("//third_party:system.bzl", "optional_package")

def repository(name):
    optional_package(
        name = name,
        build_file = Label("//third_party/libtorch:system.BUILD"),
        folders = {"/usr/include/torch/csrc/api/include": "include"},
    )
