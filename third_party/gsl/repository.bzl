# SPDX-License-Identifier: Apache-2.0
# why      not_null, narrow and the branch hints behind CHORALE_EXPECTS
# home     https://github.com/microsoft/GSL
# licence  MIT
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/gsl:system.BUILD"),
        headers = ["gsl"],
        package = "libmsgsl-dev",
    )
