#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A project outside builds a program that trains, with each build system but Bazel, in a folder with a space.

What is missing is told in a sentence, by CMake and by the compiler."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path("WORKSPACE").resolve().parent
LIST = json.loads((ROOT / "third_party/packages.json").read_text())
WORK = pathlib.Path(tempfile.mkdtemp(prefix="chorale outside "))
HEAD = """cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES CXX)
enable_testing()
{}
add_executable(main main.cpp)
target_link_libraries(main PRIVATE {})
add_test(NAME trains COMMAND main)
"""
# Links what a component brings.
PARTS = """#include <chorale/transport/wire/crypto.hpp>
#ifndef WITHOUT_IMAGES
#include <chorale/data/formats/image_file.hpp>
#endif
int main(int argc, char** argv) {
  unsigned char byte = 0;
#ifndef WITHOUT_IMAGES
  if (argc > 1) (void)chorale::data::read_image(argv[1]);
#endif
  return RAND_bytes(&byte, 1) == 1 && argv[argc] == nullptr ? 0 : 1;
}
"""
WAYS = {
    "find_package": ('find_package(chorale 0.2 REQUIRED COMPONENTS tcp OPTIONAL_COMPONENTS nothing)\n'
                     'find_package(chorale 0.2 REQUIRED COMPONENTS images)\n'
                     'add_executable(parts parts.cpp)\n'
                     'target_link_libraries(parts PRIVATE chorale::tcp chorale::images)\n'
                     'add_test(NAME parts COMMAND parts)', "chorale::chorale"),
    "the compiled form": ('set(CMAKE_BUILD_TYPE Debug)\nfind_package(chorale 0.2 REQUIRED COMPONENTS tcp compiled)\n'
                          'add_executable(parts parts.cpp)\n'
                          'target_compile_definitions(parts PRIVATE WITHOUT_IMAGES)\n'
                          'target_link_libraries(parts PRIVATE chorale::tcp chorale::compiled)\n'      # in any order
                          'add_test(NAME parts COMMAND parts)', "chorale::compiled"),
    "FetchContent": (f'include(FetchContent)\nFetchContent_Declare(chorale SOURCE_DIR "{ROOT}")\n'
                     'FetchContent_MakeAvailable(chorale)\nchorale_components(images)', "chorale::chorale"),
    "add_subdirectory": (f'set(CHORALE_COMPONENTS tcp)\nadd_subdirectory("{ROOT}" chorale)', "chorale::tcp"),
    "pkg-config": ('find_package(PkgConfig REQUIRED)\n'
                   'pkg_check_modules(chorale REQUIRED IMPORTED_TARGET chorale chorale-tcp)\n'
                   'set(CMAKE_CXX_STANDARD 20)', "PkgConfig::chorale"),
    "pkg-config, compiled": ('find_package(PkgConfig REQUIRED)\n'
                             'pkg_check_modules(chorale REQUIRED IMPORTED_TARGET chorale-compiled chorale-tcp)\n'
                             'set(CMAKE_CXX_STANDARD 20)\nadd_executable(parts parts.cpp)\n'
                             'target_compile_definitions(parts PRIVATE WITHOUT_IMAGES)\n'
                             'target_link_libraries(parts PRIVATE PkgConfig::chorale)\n'
                             'add_test(NAME parts COMMAND parts)', "PkgConfig::chorale"),
}
failed = 0


def report(name, good, said=""):
    global failed
    failed += not good
    print((f"{said[-3000:]}\nFAILED: " if not good else "PASSED: ") + name)


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=WORK,
                          env={**os.environ, "LC_ALL": "C", **environment})
    return done.returncode, done.stdout + done.stderr


def together(*commands, **environment):
    """Whether all succeed, and what the last one that ran said."""
    for command in commands:
        code, said = run(*command, **environment)
        if code:
            return False, said
    return True, said


def project(name, text, sources):
    folder = WORK / name
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(text)
    for file, content in sources.items():
        (folder / file).write_text(content)
    return folder


def build_each_way():
    program = (ROOT / "test/packages/main.cpp").read_text()
    good, said = together(["cmake", "-S", ROOT, "-B", WORK / "library", f"-DCMAKE_INSTALL_PREFIX={WORK}/first",
                           "-DCHORALE_INSTALL_COMPILED=ON"],
                          ["cmake", "--build", WORK / "library"],
                          ["cmake", "--install", WORK / "library"])
    report("cmake --install", good, said)
    installed = WORK / "moved away"
    (WORK / "first").rename(installed)                                     # neither way may know where it was
    for name, (text, target) in WAYS.items():
        folder = project(name, HEAD.format(text, target), {"main.cpp": program, "parts.cpp": PARTS})
        good, said = together(
            ["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={installed}"],
            ["cmake", "--build", folder / "build"],
            ["ctest", "--test-dir", folder / "build", "--output-on-failure"],
            PKG_CONFIG_PATH=f"{installed}/share/pkgconfig")
        report(f"a project outside trains a step: {name}", good and "100% tests passed" in said, said)
    return installed


def sentences_of_cmake(installed):
    """A folder that is named and has nothing, and a component that does not exist."""
    prefix = f"-DCMAKE_PREFIX_PATH={installed}"
    for name, component, wanted, environment in (
            ("a missing library", "tcp", "<dnnl.hpp> or its library is missing", {"CHORALE_ONEDNN": "/nowhere"}),
            ("a missing library of a component", "cuda", "<cuda_runtime_api.h> or its", {"CUDA_HOME": "/nowhere"}),
            ("an unknown component", "udp", "there is no component udp. Try one of: chorale, tcp,", {})):
        text = HEAD.format(f"find_package(chorale REQUIRED COMPONENTS {component})", "chorale::chorale")
        folder = project(name, text, {"main.cpp": ""})
        code, said = run("cmake", "-S", folder, "-B", folder / "build", prefix, **environment)
        said = " ".join(said.split())
        good = code != 0 and said.count("chorale: ") == 1 and wanted in said
        if "dnnl" in wanted:
            names = (LIST["packages"]["onednn"][key] for key in ("debian", "fedora", "homebrew", "vcpkg"))
            good = good and all(name in said for name in names)
        report(f"CMake says one sentence: {name}", good, said)


def sentences_of_compiler():
    """The preprocessor without one package, in a copy of /usr/include of links."""
    _, said = run("g++", "-xc++", "-E", "-v", "/dev/null")
    folders = re.search(r"#include <\.\.\.> search starts here:\n(.*?)End of search", said, re.S)[1].split()
    headers = {"gsl": "core/check.hpp", "onednn": "tensor/cpu/all.hpp", "zlib": "data/formats/idx.hpp",
               "nlohmann_json": "checkpoint/safetensors.hpp", "boost": "transport/tcp.hpp",
               "openssl": "transport/secret.hpp", "libjpeg": "data/formats/image_file.hpp",
               "libpng": "data/formats/image_folder.hpp"}
    for name, header in headers.items():
        package = LIST["packages"][name]
        farm = WORK / f"without {name}"
        farm.mkdir()
        hidden = package["header"].split("/")[0]
        for path in pathlib.Path("/usr/include").iterdir():
            if path.name != hidden:
                (farm / path.name).symlink_to(path)
        search = [part for folder in folders for part in ("-isystem", farm if folder == "/usr/include" else folder)]
        code, said = run("g++", "-std=c++20", "-nostdinc", "-E", *search, "-I", ROOT / "include",
                         "-include", f"chorale/{header}", "-xc++", "/dev/null", "-o", "/dev/null")
        errors = [line for line in said.splitlines() if "error:" in line]
        good = code != 0 and errors and f"chorale: <{package['header']}> is not on the include path" in errors[0] \
            and package["debian"] in errors[0] and package["vcpkg"] in errors[0]
        report(f"the compiler says a sentence where {name} is missing", bool(good), said)
    for name, component in LIST["components"].items():
        for header in component.get("guard_in", []):
            command = ["g++", "-std=c++20", "-E", "-I", ROOT / "include", "-include", f"chorale/{header}", "-xc++",
                       "/dev/null", "-o", "/dev/null", "-DCHORALE_COMPONENTS"]
            defines = [f"-DCHORALE_COMPONENT_{n.upper()}" for n in LIST["components"] if n != name]
            _, said = run(*command, *defines)
            errors = [line for line in said.splitlines() if "error:" in line]
            _, fine = run(*command, *defines, f"-DCHORALE_COMPONENT_{name.upper()}")
            report(f"{header} without chorale::{name} is one sentence of the compiler",
                   bool(errors) and f"add chorale::{name} to" in errors[0] and "of the component" not in fine,
                   said + fine)


absent = [tool for tool in ("cmake", "ctest", "make", "pkg-config") if not shutil.which(tool)]
try:
    if absent:
        print(f"SKIPPED: projects without Bazel: {', '.join(absent)} is not installed")
    else:
        sentences_of_cmake(build_each_way())
    sentences_of_compiler()
finally:
    shutil.rmtree(WORK)
sys.exit(failed != 0)
