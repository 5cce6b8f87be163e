# SPDX-License-Identifier: Apache-2.0
# why      the flags of examples and benchmarks; the library reads none
# home     https://github.com/CLIUtils/CLI11
# licence  BSD-3-Clause
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/cli11:system.BUILD"),
        headers = ["CLI"],
        package = "libcli11-dev",
    )
