# SPDX-License-Identifier: Apache-2.0
# why      an optional peer: bench/reduce reduces the same buffers with it, where libgloo-dev is installed
# home     https://github.com/facebookincubator/gloo
# licence  BSD-3-Clause
load("//third_party:system.bzl", "optional_package")

def repository(name):
    optional_package(
        name = name,
        build_file = Label("//third_party/gloo:system.BUILD"),
        folders = {"/usr/include/gloo": "include/gloo"},
    )
