# SPDX-License-Identifier: Apache-2.0
"""Tests, and what they share."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//tools:copts.bzl", "COPTS")

def chorale_test(name, srcs, deps = [], tags = [], optimise = "-O1", **kwargs):
    """A Catch2 test over the whole library. Files in `data` are opened by their path from the repository's root.

    It is compiled once and run for a second: with -O1 that is half the time of -O3, and with -O0 three quarters of that
    where it computes little."""
    cc_test(
        name = name,
        size = "small",
        srcs = srcs,
        copts = COPTS + [optimise],
        tags = tags + ["catch2"],
        deps = deps + ["//:chorale", "//test/support", "//test/support:catch_main"],
        **kwargs
    )

def _headers_of(ctx):
    sets = [library[CcInfo].compilation_context.headers for library in ctx.attr.deps]
    ours = [f for f in depset(transitive = sets).to_list() if f.is_source and f.short_path.startswith("include/")]
    return [DefaultInfo(files = depset(ours), runfiles = ctx.runfiles(files = ours))]

# The headers of this repository that a cc_library has, and those of everything below it.
headers_of = rule(
    implementation = _headers_of,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)
