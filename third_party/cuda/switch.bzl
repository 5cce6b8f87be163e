# SPDX-License-Identifier: Apache-2.0
"""Whether the programs of a build have CUDA, and a program that has it in tests of a build that has not."""

def _switch_impl(ctx):
    pass

switch = rule(
    implementation = _switch_impl,
    build_setting = config.bool(flag = True),
)

def _on_impl(settings, attr):
    return {
        "//command_line_option:platform_suffix": "-cuda",
        "//third_party/cuda:on": True,
    }

_on = transition(
    implementation = _on_impl,
    inputs = [],
    outputs = ["//command_line_option:platform_suffix", "//third_party/cuda:on"],
)

def _program_impl(ctx):
    program = ctx.attr.program[0][DefaultInfo]
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = out, target_file = program.files_to_run.executable, is_executable = True)
    return [DefaultInfo(executable = out, runfiles = program.default_runfiles)]

program_under_cuda = rule(
    implementation = _program_impl,
    attrs = {
        "program": attr.label(cfg = _on, executable = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    executable = True,
)
