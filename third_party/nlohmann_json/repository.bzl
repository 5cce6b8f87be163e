# SPDX-License-Identifier: Apache-2.0
# why      the header of a safetensors file, TF_CONFIG
# home     https://github.com/nlohmann/json
# licence  MIT
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/nlohmann_json:system.BUILD"),
        headers = ["nlohmann"],
        package = "nlohmann-json3-dev",
    )
