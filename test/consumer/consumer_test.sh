#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A workspace that has never heard of chorale loads it, builds ten lines with @chorale//:chorale, and runs them.
set -eu
chorale=$(dirname "$(readlink -f WORKSPACE)")
consumer=$(mktemp -d "${TMPDIR:-/tmp}/chorale-XXXXXX")      # not in TEST_TMPDIR: Bazel refuses to run in its own output

bazel() {
  (cd "$consumer/workspace" && env -i HOME="$consumer" USER=consumer PATH=/usr/bin:/bin \
    bazel --output_user_root="$consumer/out" --max_idle_secs=10 "$@")
}
clean() {
  bazel shutdown > /dev/null 2>&1 || true
  chmod -R u+w "$consumer"
  rm -rf "$consumer"
}
trap clean EXIT

mkdir -p "$consumer/workspace"
cp "$chorale/.bazelversion" "$consumer/workspace/"
cat > "$consumer/workspace/WORKSPACE" << END
workspace(name = "consumer")
local_repository(name = "chorale", path = "$chorale")
load("@chorale//third_party/bazel:system.bzl", "bazel_system_repositories")
bazel_system_repositories()
load("@chorale//third_party:repositories.bzl", "third_party_repositories")
third_party_repositories()
END
cat > "$consumer/workspace/.bazelrc" << END
build --cxxopt=-std=c++20 --nosandbox_debug --spawn_strategy=local
END
cat > "$consumer/workspace/BUILD" << END
cc_binary(name = "main", srcs = ["main.cpp"], deps = ["@chorale//:chorale"])
END
cat > "$consumer/workspace/main.cpp" << 'END'
#include <chorale/chorale.hpp>

#include <iostream>

int main() {
  auto const device = chorale::Cpu{};
  auto const random = chorale::Random{chorale::Seed{1}, 2};
  std::cout << "chorale " << CHORALE_VERSION_MAJOR << " on " << device.threads() << " threads: " << random.bits(0)
            << "\n";
}
END

bazel build --noshow_progress //:main
if [[ $("$consumer/workspace/bazel-bin/main") =~ ^chorale\ [0-9]+\ on\ [0-9]+\ threads:\ [0-9]+$ ]]; then
  echo "PASSED: another workspace builds and runs a program with @chorale//:chorale"
else
  echo "FAILED: another workspace builds and runs a program with @chorale//:chorale"
  exit 1
fi
