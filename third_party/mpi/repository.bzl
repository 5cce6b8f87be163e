# SPDX-License-Identifier: Apache-2.0
# why      optional: MpiTransport, and a peer of bench/reduce, where libopenmpi-dev is installed
# home     https://www.open-mpi.org
# licence  BSD-3-Clause
load("//third_party:system.bzl", "optional_package")

def repository(name):
    optional_package(
        name = name,
        build_file = Label("//third_party/mpi:system.BUILD"),
        folders = {
            "/usr/lib/aarch64-linux-gnu/openmpi/include": "include_aarch64",
            "/usr/lib/x86_64-linux-gnu/openmpi/include": "include_x86_64",
        },
    )
