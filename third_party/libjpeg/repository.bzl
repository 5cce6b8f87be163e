# SPDX-License-Identifier: Apache-2.0
# why      JPEG images: data/formats/image_file.hpp
# home     https://libjpeg-turbo.org
# licence  IJG and BSD-3-Clause
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/libjpeg:system.BUILD"),
        headers = ["jerror.h", "jmorecfg.h", "jpeglib.h"],
        package = "libjpeg62-turbo-dev",
    )
