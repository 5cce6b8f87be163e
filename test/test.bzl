# SPDX-License-Identifier: Apache-2.0
"""Tests, and what they share."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")
load("//tools:copts.bzl", "COPTS")

def chorale_test(name, srcs, deps = [], tags = [], optimise = "-O1", precompiled = True, **kwargs):
    """A Catch2 test over the whole library, in its compiled form: that takes half as long. Files in `data` are opened by their path from the repository's root.

    tags: "exclusive" for what measures time; "cpu:2" for ranks that wait for one another all the time, and are ten times
    as slow where compilers have every core.

    It is compiled once and run for a second: with -O1 that is half the time of -O3, and with -O0 three quarters of that
    where it computes little. Without a section for each function it takes a twentieth less.

    precompiled: the file begins with the headers that //test/support precompiles for -O0 and -O1"""
    cc_test(
        name = name,
        size = "small",
        srcs = srcs,
        copts = COPTS + [optimise, "-fno-function-sections", "-fno-data-sections"] + select({
            "//:over_headers": [],
            "//conditions:default": ["-include $(BINDIR)/test/support/all%s.hpp" % optimise] if precompiled else [],
        }),
        tags = tags + ["catch2"],
        deps = select({
            "//:over_headers": [],
            "//conditions:default": ["//:compiled"] + (["//test/support:all" + optimise] if precompiled else []),
        }) + deps + ["//test/support", "//test/support:catch_main"],
        **kwargs
    )

def chorale_tests(together = {}, differently = {}, **kwargs):
    """A test for each *_test.cpp of a folder and of those in it, each of another name; their headers belong to all.

    Half of what a compiler does for such a file are headers, and templates that its neighbours use as well: files that
    are compiled together take half the time. They share what is in a namespace without a name.

    together: {name of a test: its files, without _test.cpp}. differently: {name of a test: kwargs of its own}"""
    tests = {file.split("/")[-1][:-len(".cpp")]: [file] for file in native.glob(["**/*_test.cpp"])}
    for name, parts in together.items():
        files = [tests.pop(part + "_test")[0] for part in parts]             # one that is not there is an error
        native.genrule(
            name = name + "_unit",
            outs = [name + "_unit.cpp"],
            cmd = "(%s) > $@" % "; ".join(
                ["echo '#include \"%s/%s\"'" % (native.package_name(), file) for file in files],
            ),
        )
        cc_library(name = name + "_parts", testonly = True, textual_hdrs = files)
        tests[name] = [name + "_unit.cpp"]
    for name, srcs in tests.items():
        own = dict(kwargs, **differently.get(name, {}))
        parts = [name + "_parts"] if name in together else []
        chorale_test(name = name, srcs = srcs + native.glob(["**/*.hpp"], allow_empty = True), deps = own.pop("deps", []) + parts, **own)

def _headers_of(ctx):
    sets = [library[CcInfo].compilation_context.headers for library in ctx.attr.deps]
    left = ctx.attr.without[CcInfo].compilation_context.headers.to_list() if ctx.attr.without else []
    ours = [f for f in depset(transitive = sets).to_list() if f.is_source and f.short_path.startswith("include/") and f not in left]
    return [DefaultInfo(files = depset(ours), runfiles = ctx.runfiles(files = ours))]

# The headers of this repository that a cc_library has, and those of everything below it, without those of another one.
headers_of = rule(
    implementation = _headers_of,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "without": attr.label(providers = [CcInfo]),
    },
)
