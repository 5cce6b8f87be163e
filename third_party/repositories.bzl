# SPDX-License-Identifier: Apache-2.0
# Written by tools/packages from third_party/packages.json
"""Every dependency of chorale. Nothing is fetched before a target asks for it."""

load("//third_party/boost:repository.bzl", boost = "repository")
load("//third_party/catch2:repository.bzl", catch2 = "repository")
load("//third_party/cli11:repository.bzl", cli11 = "repository")
load("//third_party/cuda:repository.bzl", cuda = "repository")
load("//third_party/gloo:repository.bzl", gloo = "repository")
load("//third_party/gsl:repository.bzl", gsl = "repository")
load("//third_party/libjpeg:repository.bzl", libjpeg = "repository")
load("//third_party/libpng:repository.bzl", libpng = "repository")
load("//third_party/libtorch:repository.bzl", libtorch = "repository")
load("//third_party/mpi:repository.bzl", mpi = "repository")
load("//third_party/nlohmann_json:repository.bzl", nlohmann_json = "repository")
load("//third_party/onednn:repository.bzl", onednn = "repository")
load("//third_party/openssl:repository.bzl", openssl = "repository")
load("//third_party/zlib:repository.bzl", zlib = "repository")

ALL = {
    "boost": boost,
    "catch2": catch2,
    "cli11": cli11,
    "cuda": cuda,
    "gloo": gloo,
    "gsl": gsl,
    "libjpeg": libjpeg,
    "libpng": libpng,
    "libtorch": libtorch,
    "mpi": mpi,
    "nlohmann_json": nlohmann_json,
    "onednn": onednn,
    "openssl": openssl,
    "zlib": zlib,
}

def third_party_repositories():
    """Declares them. A workspace that declared one of these names before keeps its own."""
    known = native.existing_rules()
    for name in ALL:
        if name not in known:
            ALL[name](name)
