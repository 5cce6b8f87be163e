# SPDX-License-Identifier: Apache-2.0
# why      the tests; nothing that a user compiles
# home     https://github.com/catchorg/Catch2
# licence  BSL-1.0
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/catch2:system.BUILD"),
        headers = ["catch2"],
        package = "catch2",
    )
