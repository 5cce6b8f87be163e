# SPDX-License-Identifier: Apache-2.0
# why      the fast convolutions and matrix products of a CPU; we write none
# home     https://github.com/oneapi-src/oneDNN
# licence  Apache-2.0
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/onednn:system.BUILD"),
        headers = ["dnnl.h", "dnnl.hpp", "oneapi/dnnl"],
        package = "libdnnl-dev",
    )
