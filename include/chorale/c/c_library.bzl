# SPDX-License-Identifier: Apache-2.0
"""Libraries for C and Fortran programs."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")

def chorale_c_library(name, srcs, deps = [], linkopts = [], visibility = None, testonly = False, **kwargs):
    """A shared library with the functions of <chorale/c/chorale.h>, for the models that a source names.

    It shows these functions only. Programs in C have `name` in their deps, which also has the header; the library
    itself is lib<name>.so. With MPI: deps = ["@mpi"].

    srcs: one of them defines chorale_create(). kwargs: of the cc_binary, such as copts"""
    shown = str(Label("//include/chorale/c:exports.map"))
    cc_binary(
        name = "lib" + name + ".so",
        srcs = srcs,
        additional_linker_inputs = [shown],
        linkopts = ["-Wl,--version-script=$(location %s)" % shown] + linkopts,
        linkshared = True,
        testonly = testonly,
        visibility = visibility,
        deps = [str(Label("//include/chorale/c"))] + deps,
        **kwargs
    )
    cc_library(
        name = name,
        srcs = ["lib" + name + ".so"],
        testonly = testonly,
        visibility = visibility,
        deps = [str(Label("//include/chorale/c:header"))],
    )
