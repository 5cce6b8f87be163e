# SPDX-License-Identifier: Apache-2.0
# why      PNG images: data/formats/image_file.hpp
# home     http://www.libpng.org
# licence  libpng-2.0
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/libpng:system.BUILD"),
        headers = ["png.h", "pngconf.h", "pnglibconf.h"],
        package = "libpng-dev",
    )
