# SPDX-License-Identifier: Apache-2.0
"""Settings of //examples:mnist: each names a part of the program, and the header that is written has its C++.

    bazel run --//examples:strategy=central_storage --//examples:reduce=ring //examples:mnist
"""

ChoiceInfo = provider(fields = ["value", "text"])

def _choice_impl(ctx):
    value = ctx.build_setting_value
    if value not in ctx.attr.values:
        fail("chorale: --%s=%s is none of %s." % (ctx.label, value, ", ".join(sorted(ctx.attr.values))))
    return ChoiceInfo(value = value, text = ctx.attr.values[value])

# A command-line setting; `values` maps each value to its C++.
choice = rule(
    implementation = _choice_impl,
    build_setting = config.string(flag = True),
    attrs = {"values": attr.string_dict(mandatory = True)},
)

def _chosen_impl(ctx):
    part = {c.label.name: c[ChoiceInfo] for c in ctx.attr.choices}
    value = {name: p.value for name, p in part.items()}

    # What the compiler refuses in a long sentence, Bazel refuses before it starts.
    if value["strategy"] == "parameter_server":
        if value["precision"] != "float32":
            fail("chorale: under parameter_server no gradient passes through a reduce, so precision %s would be without " %
                 value["precision"] + "effect. Try: --//examples:precision=float32.")
    elif value["placement"] != "default":
        fail("chorale: placement %s deals variables out to servers, and strategy %s has none. " %
             (value["placement"], value["strategy"]) + "Try: --//examples:strategy=parameter_server.")
    if value["strategy"] in ["local_sgd", "gossip"] and value["precision"] != "float32":
        fail("chorale: %s averages variables, which precision %s would round. Try: --//examples:precision=float32." %
             (value["strategy"], value["precision"]))
    if value["strategy"] == "sharded" and (value["reduce"] not in ["ring", "direct"] or value["precision"] != "float32"):
        fail("chorale: sharded uses a reduce in two halves, and reduce %s with precision %s has none. " %
             (value["reduce"], value["precision"]) + "Try: --//examples:reduce=ring --//examples:precision=float32.")
    if value["strategy"] == "multi_worker_mirrored" and value["transport"] == "local":
        fail("chorale: workers of multi_worker_mirrored are processes, and transport local connects threads. " +
             "Try: --//examples:transport=tcp.")
    if value["reduce"] == "direct" and (value["transport"] == "tcp" or value["precision"] != "float32"):
        fail("chorale: reduce direct reads and writes the memory of its peers: not over tcp, and not in 16 bits. " +
             "Try: --//examples:reduce=ring.")

    reduce = part["reduce"].text
    if part["precision"].text:
        reduce = "chorale::Compressed<%s, %s>" % (part["precision"].text, reduce)
    flags = ["\"--lr\""] + (["\"--replicas\""] if "o.replicas" in part["strategy"].text else [])
    lines = ["// SPDX-License-Identifier: Apache-2.0", "// Written by //examples:choices.bzl.", "#pragma once", ""]
    lines += ["#include %s" % h for h in ctx.attr.headers]
    lines += [
        "",
        "namespace chosen {",
        "",
        "using Placement = %s;" % part["placement"].text,
        "using Reduce    = %s;" % reduce,
        "using Transport = %s;" % part["transport"].text,
        "",
        "inline auto strategy(example::Options const& o) {",
        "  static_cast<void>(o);",
        "  using namespace chorale;",
        "  return %s;" % part["strategy"].text,
        "}",
        "",
        "inline std::vector<std::string> flags() { return {%s}; }" % ", ".join(flags),
        "",
        "inline constexpr auto names = \"%s\";" % " ".join(["%s=%s" % (n, value[n]) for n in sorted(value)]),
        "",
        "}  // namespace chosen",
        "",
    ]
    ctx.actions.write(ctx.outputs.out, "\n".join(lines))

# Writes a header with what was chosen.
chosen = rule(
    implementation = _chosen_impl,
    attrs = {
        "choices": attr.label_list(providers = [ChoiceInfo]),
        "headers": attr.string_list(),
        "out": attr.output(mandatory = True),
    },
)
