# SPDX-License-Identifier: Apache-2.0
"""Dependencies that packages of the system installed."""

def _system_package(ctx):
    for name in ctx.attr.headers + ctx.attr.found_by_compiler:
        if not ctx.path(ctx.attr.root + "/" + name).exists:
            fail("chorale: {}/{} is missing. Try: apt-get install --no-install-recommends {}".format(
                ctx.attr.root,
                name,
                ctx.attr.package,
            ))
    for name in ctx.attr.headers:
        ctx.symlink(ctx.attr.root + "/" + name, "include/" + name)
    ctx.symlink(ctx.attr.build_file, "BUILD")

system_package = repository_rule(
    implementation = _system_package,
    attrs = {
        # Files and folders below root; linked into include/, so that Bazel sees when they change.
        "headers": attr.string_list(),
        # The same for trees of ten thousand files: only that they are there is checked, and the compiler, which has
        # root on its path, finds them.
        "found_by_compiler": attr.string_list(),
        "root": attr.string(default = "/usr/include"),
        # The Debian package that installs them.
        "package": attr.string(mandatory = True),
        "build_file": attr.label(mandatory = True),
    },
    local = True,
)

# Links folders that need not be there. Bazel looks at the target of a link in each build, and at what a repository rule
# has asked only when the rule is run again: whether there is a package is therefore asked by glob(), in the BUILD file.
def _optional_package(ctx):
    for folder, link in ctx.attr.folders.items():
        ctx.symlink(folder, link)
    ctx.symlink(ctx.attr.build_file, "BUILD")

optional_package = repository_rule(
    implementation = _optional_package,
    attrs = {
        # Where each folder would be, and its name in this repository.
        "folders": attr.string_dict(mandatory = True),
        # Has a target that is empty where glob() finds nothing.
        "build_file": attr.label(mandatory = True),
    },
    local = True,
)
