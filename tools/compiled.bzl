# SPDX-License-Identifier: Apache-2.0
"""The compiled form of the library; see compiled.py."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain")

PARTS = ["base", "data", "network", "train", "travel"]

def compiler_of(ctx):
    """The toolchain of C++ that a rule compiles with, and its configuration of features."""
    cc = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    return cc, features

def _found_in(folder, defines = []):
    return CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([folder]),
        includes = depset([folder.path]),
        defines = depset(defines),
    ))

def _compiled(ctx):
    over = ctx.attr.headers[CcInfo]
    headers = [f for f in over.compilation_context.headers.to_list() if f.is_source and f.extension == "hpp"]
    source = [f.path for f in headers if f.path.endswith("include/chorale/config.hpp")][0][:-len("/chorale/config.hpp")]
    include = ctx.actions.declare_directory(ctx.label.name + "/include")
    bodies = ctx.actions.declare_directory(ctx.label.name + "/bodies")
    parts = [ctx.actions.declare_file("%s/%s.cpp" % (ctx.label.name, part)) for part in PARTS]
    ctx.actions.run(
        executable = "python3",
        arguments = [ctx.file.tool.path, source, include.dirname],
        inputs = headers + [ctx.file.tool],
        outputs = [include, bodies] + parts,
        use_default_shell_env = True,
    )

    # Its own headers are found before those of `headers`, and what only its parts read before these.
    declared = cc_common.merge_cc_infos(cc_infos = [_found_in(include, ["CHORALE_COMPILED"]), over]).compilation_context
    cc, features = compiler_of(ctx)
    _, objects = cc_common.compile(
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = cc,
        name = ctx.label.name,
        srcs = parts,
        user_compile_flags = ctx.attr.copts,
        compilation_contexts = [_found_in(bodies).compilation_context, declared],
    )
    linked, outputs = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = cc,
        name = ctx.label.name,
        compilation_outputs = objects,
        linking_contexts = [over.linking_context],
        disallow_dynamic_library = True,
    )
    library = outputs.library_to_link
    return [
        DefaultInfo(files = depset([library.static_library or library.pic_static_library])),
        OutputGroupInfo(include = depset([include])),
        CcInfo(compilation_context = declared, linking_context = linked),
    ]

compiled_library = rule(
    doc = """A cc_library with the compiled form of a library that is headers. Headers that a change leaves as they were
    compile nothing again: a change in a body compiles the parts alone.""",
    implementation = _compiled,
    attrs = {
        "copts": attr.string_list(),
        "headers": attr.label(providers = [CcInfo], mandatory = True),
        "tool": attr.label(allow_single_file = True, default = "//tools:compiled.py"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
