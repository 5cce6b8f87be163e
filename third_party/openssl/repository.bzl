# SPDX-License-Identifier: Apache-2.0
# why      HMAC and HKDF of the handshake, AES-GCM of sealed frames, SHA-256 and random numbers; we write none
# home     https://www.openssl.org
# licence  Apache-2.0
load("//third_party:system.bzl", "system_package")

def repository(name):
    system_package(
        name = name,
        build_file = Label("//third_party/openssl:system.BUILD"),
        headers = ["openssl"],
        package = "libssl-dev",
    )
