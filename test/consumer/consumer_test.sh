#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workspaces that are not this one load chorale, build a program with @chorale//:chorale, and train with it: one by the
# lines of README.md, and one that tools/new has made.
set -eu
chorale=$(dirname "$(readlink -f WORKSPACE)")
consumer=$(mktemp -d "${TMPDIR:-/tmp}/chorale-XXXXXX")      # not in TEST_TMPDIR: Bazel refuses to run in its own output

workspace=workspace                                         # the folder in $consumer in which bazel runs
bazel() {
  (cd "$consumer/$workspace" && env -i HOME="$consumer" USER=consumer PATH=/usr/bin:/bin \
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
# What README.md says: the block of Python, with the folder of this checkout, and two lines of its text.
lines=$(awk '/^```python$/ { on = 1; next } /^```$/ { on = 0 } on' README.md)
rc=$(grep -o 'build --cxxopt=[^`]*' README.md)
deps=$(grep -o 'deps = \["@chorale//:chorale"\]' README.md)
printf 'workspace(name = "consumer")\n%s\n' "${lines/\"...\"/\"$chorale\"}" > "$consumer/workspace/WORKSPACE"
printf '%s\nbuild --nosandbox_debug --spawn_strategy=local\n' "$rc" > "$consumer/workspace/.bazelrc"
printf 'cc_binary(name = "main", srcs = ["main.cpp"], %s)\n' "$deps" > "$consumer/workspace/BUILD"
printf 'cc_binary(name = "half", srcs = ["main.cpp"], %s)\n' "${deps/:chorale/:compiled}" >> "$consumer/workspace/BUILD"
cat > "$consumer/workspace/main.cpp" << 'END'
#include <chorale/chorale.hpp>

#include <iostream>
#include <vector>

using namespace chorale;

struct Line : nn::Sequential<nn::Input<1>, nn::Dense<1, nn::Initializer<Init::zeros>>> {};

int main() {
  auto const x = std::vector<float>{-2, -1, 1, 2}, y = std::vector<float>{-3, -1, 3, 5};  // y = 2 x + 1
  auto trainer = Trainer{nn::compile<Line>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.125F}),
                         MirroredStrategy{Cpu::logical(2)}};
  auto const rows   = data::from_tensors(x, y, 1).batch(4);
  auto const before = trainer.evaluate(rows).loss();
  trainer.fit(rows, {.show = Show::nothing});
  auto const after = trainer.evaluate(rows).loss();
  std::cout << "chorale " << CHORALE_VERSION_MAJOR << ": loss " << before << ", after a step on "
            << trainer.live().num_replicas() << " replicas " << after << "\n";
}
END

# From w = b = 0 the loss is (9 + 1 + 9 + 25) / 4 = 11. Its gradient by w is 2 (-6 - 1 - 3 - 10) / 4 = -10, by b -2. With
# w = 1.25 and b = 0.25 the loss is (0.5625 + 0 + 2.25 + 5.0625) / 4 = 1.96875.
bazel build --noshow_progress //:main //:half
for program in main:chorale half:compiled; do
  said=$("$consumer/workspace/bazel-bin/${program%:*}")
  what="another workspace builds a program with @chorale//:${program#*:}, which trains a step"
  if [[ $said =~ ^chorale\ [0-9]+:\ loss\ 11,\ after\ a\ step\ on\ 2\ replicas\ 1\.96875$ ]]; then
    echo "PASSED: $what"
  else
    echo "it says: $said"
    echo "FAILED: $what"
    exit 1
  fi
done

bazel shutdown
workspace=project
"$chorale/tools/new" "$consumer/project" --bazel
if bazel test --noshow_progress //:trains; then
  echo "PASSED: the workspace that tools/new makes builds a program with @chorale//:chorale, which learns"
else
  echo "FAILED: the workspace that tools/new makes builds a program with @chorale//:chorale, which learns"
  exit 1
fi
