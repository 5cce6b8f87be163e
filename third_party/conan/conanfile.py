# SPDX-License-Identifier: Apache-2.0
"""conan create third_party/conan: a header library, and what its components need. Only the form is tested."""
from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy

import os

# component: [(what it requires, its target)]
DEPENDENCIES = {
    # <packages>
    "chorale": [
        ("ms-gsl/4.0.0", "ms-gsl::ms-gsl"),
        ("nlohmann_json/[>=3.11 <4]", "nlohmann_json::nlohmann_json"),
        ("onednn/[>=2.6]", "onednn::onednn"),
        ("zlib/[>=1.2.11 <2]", "zlib::zlib"),
    ],
    "tcp": [
        ("boost/[>=1.74]", "boost::headers"),
        ("openssl/[>=3 <4]", "openssl::crypto"),
    ],
    "mpi": [
        ("openmpi/[>=4.1]", "openmpi::openmpi"),
    ],
    "images": [
        ("libjpeg-turbo/[>=2.1]", "libjpeg-turbo::libjpeg-turbo"),
        ("libpng/[>=1.6 <2]", "libpng::libpng"),
    ],
    # </packages>
}
OPTIONAL = [name for name in DEPENDENCIES if name != "chorale"]


class Chorale(ConanFile):
    name = "chorale"
    version = "0.2.0"
    description = "Distributed training in C++20, header-only"
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {f"with_{name}": [True, False] for name in OPTIONAL}
    default_options = {f"with_{name}": False for name in OPTIONAL}
    no_copy_source = True

    def components(self):
        return ["chorale"] + [name for name in OPTIONAL if self.options.get_safe(f"with_{name}")]

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("include/*.hpp", "include/*.cuh", "include/*.cu", "LICENSE", "tools/compiled.py",
                        "third_party/cmake/compiled.cmake"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        for component in self.components():
            for reference, _ in DEPENDENCIES[component]:
                self.requires(reference, transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package(self):
        copy(self, "include/*", self.source_folder, self.package_folder)
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for path in ("tools/compiled.py", "third_party/cmake/compiled.cmake"):     # chorale::compiled, built by who links it
            folder, name = os.path.split(path)
            copy(self, name, os.path.join(self.source_folder, folder), os.path.join(self.package_folder, "cmake"))

    def package_info(self):
        self.cpp_info.set_property("cmake_build_modules", [os.path.join("cmake", "compiled.cmake")])
        for component in self.components():
            info = self.cpp_info.components[component]
            info.set_property("cmake_target_name", f"chorale::{component}")
            info.bindirs = info.libdirs = []
            info.requires = [target for _, target in DEPENDENCIES[component]]
            if component == "chorale":
                info.system_libs = ["gomp", "pthread"]
                info.defines = ["CHORALE_COMPONENTS"]
            else:
                info.requires.append("chorale")
                info.defines = [f"CHORALE_COMPONENT_{component.upper()}"]

    def package_id(self):
        self.info.clear()
