# SPDX-License-Identifier: Apache-2.0
# why      Asio, for the TCP transport; headers only
# home     https://www.boost.org
# licence  BSL-1.0
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/boost:system.BUILD"),
        found_by_compiler = ["boost/asio.hpp"],
        package = "libboost1.81-dev",
    )
