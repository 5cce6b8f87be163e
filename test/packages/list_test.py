#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""third_party/packages.json against all that is written from it, and the form of what no tool here can run."""
import ast
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path("WORKSPACE").resolve().parent
failed = 0


def report(name, good):
    global failed
    failed += not good
    print(("PASSED: " if good else "FAILED: ") + name)


done = subprocess.run([ROOT / "tools/packages"], capture_output=True, text=True, check=False)
print(done.stdout + done.stderr, end="")
failed += done.returncode != 0

packages = json.loads((ROOT / "third_party/packages.json").read_text())
folders = {path.parent.name for path in ROOT.glob("third_party/*/repository.bzl")}
report("each folder of third_party is in the list", folders <= set(packages["packages"]))

# Starlark is, in its form, Python.
names = {}
for file in ("MODULE.bazel", "third_party/extensions.bzl", "third_party/conan/conanfile.py"):
    tree = ast.parse((ROOT / file).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names[file] = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
    report(f"{file} has the form of its language", True)
report("MODULE.bazel calls what Bazel knows",
       names["MODULE.bazel"] == {"module", "bazel_dep", "use_extension", "use_repo"})

cmake = ROOT / "third_party/cmake"
sought = re.findall(r"^_chorale_find_package\((\w+)\)", (cmake / "tests.cmake").read_text(), re.M)
known = (cmake / "packages.cmake").read_text()
report("CMake knows the packages of its tests",
       sought and all(f"set(CHORALE_PACKAGE_{name}_HEADER " in known for name in sought))

port = json.loads((ROOT / "third_party/vcpkg/ports/chorale/vcpkg.json").read_text())
report("the features of the port are the components",
       set(port["features"]) | {"chorale"} == set(packages["components"]))
presets = json.loads((ROOT / "CMakePresets.json").read_text())
configured = {preset["name"] for preset in presets["configurePresets"]}
report("each preset builds what it configures",
       all(preset["configurePreset"] in configured for preset in presets["buildPresets"] + presets["testPresets"]))

# How the library's own programs are compiled, and those of tools/new.
bazelrc, new = (ROOT / ".bazelrc").read_text(), (ROOT / "tools/new").read_text()
for_all = "\n".join(line for line in bazelrc.splitlines() if line.startswith("build --"))
flags = re.findall(r"--cxxopt=(-m\S+|-f\S+)", for_all)
report("tools/new compiles as .bazelrc does", len(flags) >= 3 and all(new.count(flag) == 2 for flag in flags))
done = subprocess.run([ROOT / "tools/new", "/nowhere/test"], capture_output=True, text=True, check=False)
report("tools/new refuses a name of the build's own",
       done.returncode == 2 and "'test' is a name that the build of the project has already" in done.stderr)
sys.exit(failed != 0)
