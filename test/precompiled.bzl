# SPDX-License-Identifier: Apache-2.0
"""Headers that a compiler reads once for many files."""

load("@rules_cc//cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("//tools:compiled.bzl", "compiler_of")

def _precompiled(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".hpp")
    made = ctx.actions.declare_file(ctx.label.name + ".hpp.gch")         # clang looks for this name, too
    ctx.actions.write(header, "".join(["#include <%s>\n" % name for name in ctx.attr.includes]))
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    cc, features = compiler_of(ctx)
    is_clang = cc.compiler == "clang"
    command = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = cc,
            source_file = header.path,
            output_file = made.path,
            # Of clang: what the headers instantiate is instantiated here; a file is not refused for its time.
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts +
                                 (["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"] if is_clang else []) +
                                 ["-x", "c++-header"],
            include_directories = context.includes,
            quote_include_directories = context.quote_includes,
            system_include_directories = context.system_includes,
            preprocessor_defines = context.defines,
        ),
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = command,
        inputs = depset([header], transitive = [context.headers, cc.all_files]),
        outputs = [made],
        mnemonic = "Precompile",
        progress_message = "Compiling %s" % header.short_path,
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(files = depset([header, made])),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset([header, made]))),
    ]

# A file is compiled with copts of its own and `-include $(BINDIR)/<package>/<name>.hpp`, and depends on it.
precompiled = rule(
    implementation = _precompiled,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "includes": attr.string_list(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
