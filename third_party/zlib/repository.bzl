# SPDX-License-Identifier: Apache-2.0
# why      data sets are distributed as .gz
# home     https://zlib.net
# licence  Zlib
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/zlib:system.BUILD"),
        headers = ["zlib.h", "zconf.h"],
        package = "zlib1g-dev",
    )
