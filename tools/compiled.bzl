# SPDX-License-Identifier: Apache-2.0
"""The compiled form of the library; see compiled.py."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//tools:copts.bzl", "COPTS")

PARTS = ["base", "data", "network", "train", "travel"]

def _sources(ctx):
    all_headers = ctx.attr.headers[CcInfo].compilation_context.headers.to_list()
    headers = [f for f in all_headers if f.is_source and f.extension == "hpp"]
    source = [f.path for f in headers if f.path.endswith("include/chorale/config.hpp")][0][:-len("/chorale/config.hpp")]
    include = ctx.actions.declare_directory(ctx.label.name + "/include")
    parts = [ctx.actions.declare_file("%s/%s.cpp" % (ctx.label.name, part)) for part in PARTS]
    ctx.actions.run(
        executable = "python3",
        arguments = [ctx.file.tool.path, source, include.dirname],
        inputs = headers + [ctx.file.tool],
        outputs = [include] + parts,
        use_default_shell_env = True,
    )
    context = cc_common.create_compilation_context(headers = depset([include]), includes = depset([include.path]))
    return [DefaultInfo(files = depset(parts)), CcInfo(compilation_context = context)]

_compiled_sources = rule(
    implementation = _sources,
    attrs = {
        "headers": attr.label(providers = [CcInfo]),
        "tool": attr.label(allow_single_file = True, default = "//tools:compiled.py"),
    },
)

def compiled_library(name, headers, copts = [], **kwargs):
    """A cc_library with the compiled form of a library that is headers.

    headers: that library. Its own headers are found after those of the compiled form, which declare its functions."""
    _compiled_sources(name = name + "_source", headers = headers)
    cc_library(
        name = name,
        srcs = [name + "_source"],
        copts = COPTS + copts,
        defines = ["CHORALE_COMPILED"],
        linkstatic = True,
        deps = [name + "_source", headers],
        **kwargs
    )
