# SPDX-License-Identifier: Apache-2.0
"""What Bazel 4 would download for itself, from Debian's packages under the same names."""

_MISSING = "chorale: {path} is missing. Try: apt-get install --no-install-recommends {package}"

def _root(ctx, path, package):
    root = ctx.path(path)
    if not root.exists:
        fail(_MISSING.format(path = path, package = package))
    return root

def _link_children(ctx, root, under, but):
    for path in root.readdir():
        if path.basename != but:
            ctx.symlink(path, under + path.basename)

def _system_tree(ctx):
    _link_children(ctx, _root(ctx, ctx.attr.path, ctx.attr.package), "", but = None)

system_tree = repository_rule(
    implementation = _system_tree,
    attrs = {"path": attr.string(mandatory = True), "package": attr.string(mandatory = True)},
    local = True,
)

# Debian's rules_cc 0.0.4 asks @bazel_tools for use_cpp_toolchain, which Bazel 4.2.3 does not have: the tree is linked,
# and that one call is rewritten.
def _system_rules_cc(ctx):
    root = _root(ctx, "/usr/share/bazel/rules/cc", "bazel-rules-cc")
    cc = root.get_child("cc")
    private = cc.get_child("private")
    _link_children(ctx, root, "", but = "cc")
    _link_children(ctx, cc, "cc/", but = "private")
    _link_children(ctx, private, "cc/private/", but = "rules_impl")
    for path in private.get_child("rules_impl").readdir():
        text = ctx.read(path).replace(', "use_cpp_toolchain"', "")
        text = text.replace("use_cpp_toolchain()", '["@bazel_tools//tools/cpp:toolchain_type"]')
        ctx.file("cc/private/rules_impl/" + path.basename, text)

system_rules_cc = repository_rule(implementation = _system_rules_cc, local = True)

# cc_test depends on the coverage tools even when nobody asks for coverage.
def _no_coverage_tools(ctx):
    ctx.file("BUILD", 'filegroup(name = "coverage_report_generator", visibility = ["//visibility:public"])\n')

no_coverage_tools = repository_rule(implementation = _no_coverage_tools)

def bazel_system_repositories():
    """Declares them. A workspace that declared one of these names before keeps its own."""
    known = native.existing_rules()
    if "rules_cc" not in known:
        system_rules_cc(name = "rules_cc")
    if "rules_java" not in known:
        system_tree(name = "rules_java", path = "/usr/share/bazel/rules/java", package = "bazel-rules-java")
    if "rules_proto" not in known:
        system_tree(name = "rules_proto", path = "/usr/share/bazel/rules/proto", package = "bazel-rules-proto")
    if "remote_coverage_tools" not in known:
        no_coverage_tools(name = "remote_coverage_tools")
