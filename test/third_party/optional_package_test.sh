#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An optional package is seen by the first build after it was installed, and not any more after it was removed, without a
# new server of Bazel and without another command. A folder of the test stands for the system's. What an environment
# variable names is taken instead.
set -eu
chorale=$(dirname "$(readlink -f WORKSPACE)")
work=$(mktemp -d "${TMPDIR:-/tmp}/chorale-XXXXXX")          # not in TEST_TMPDIR: Bazel refuses to run in its own output
mkdir "$work/workspace"
failed=0

given=()                                                    # CHORALE_LIBTORCH=FOLDER, CHORALE_ONEDNN=FOLDER
bazel() {
  (cd "$work/workspace" && env -i HOME="$work" USER=consumer PATH=/usr/bin:/bin "${given[@]}" \
    bazel --output_user_root="$work/out" --max_idle_secs=10 "$@" 2> "$work/said") || { cat "$work/said" >&2; return 1; }
}
clean() {
  bazel shutdown > /dev/null 2>&1 || true
  chmod -R u+w "$work"
  rm -rf "$work"
}
trap clean EXIT

cp "$chorale/.bazelversion" "$work/workspace/"
touch "$work/workspace/BUILD"
{
  cat << END
workspace(name = "consumer")
local_repository(name = "chorale", path = "$chorale")
load("@chorale//third_party/bazel:system.bzl", "bazel_system_repositories")
bazel_system_repositories()
load("@chorale//third_party:system.bzl", "optional_package")
load("@chorale//third_party/libtorch:repository.bzl", "libtorch_package")
load("@chorale//third_party/onednn:repository.bzl", "onednn_package")
END
  # package NAME HEADER LINK: with the target of third_party/NAME, and folders of the test
  package() {
    echo "optional_package(name = \"$1\", build_file = \"@chorale//third_party/$1:system.BUILD\"," \
      "folders = {\"$work/system/$1\": \"$3\"})"
  }
  package mpi mpi.h include_x86_64
  package gloo allreduce.h include/gloo
  echo "libtorch_package(name = \"libtorch\", debian = \"$work/system/libtorch\", asks_python = False)"
  echo "onednn_package(name = \"onednn\", debian = \"$work/usr\")"
} > "$work/workspace/WORKSPACE"

# check WHEN NAME DEFINE yes|no: whether the target has the define
check() {
  local target answer=no
  target=$(bazel query --output=build "@$2//:$2")
  [[ $target != *"\"$3\""* ]] || answer=yes
  if [[ $answer == "$4" ]]; then echo "PASSED: $2 $1: $3 is defined: $4"
  else echo "FAILED: $2 $1: $3 is defined: $answer"; printf '%s\n' "$target"; failed=1; fi
}
all() { check "$1" mpi CHORALE_HAVE_MPI "$2"; check "$1" gloo CHORALE_HAVE_GLOO "$2"; check "$1" libtorch CHORALE_HAVE_LIBTORCH "$2"; }

all "before it is installed" no
mkdir -p "$work/system/mpi" "$work/system/gloo" "$work/system/libtorch/torch"
touch "$work/system/mpi/mpi.h" "$work/system/gloo/allreduce.h" "$work/system/libtorch/torch/torch.h"
all "after it was installed" yes
rm -r "$work/system"
all "after it was removed" no

# A folder of libtorch by its name: of its headers only its own are linked, and a folder without them is refused.
api=torch/csrc/api/include/torch
mkdir -p "$work/torch/include/$api" "$work/torch/include/ATen" "$work/torch/share/cmake/Torch"
touch "$work/torch/include/$api/torch.h" "$work/torch/include/ATen/ATen.h" "$work/torch/include/dnnl.hpp"
given=(CHORALE_LIBTORCH="$work/torch")
check "in the folder of CHORALE_LIBTORCH" libtorch CHORALE_HAVE_LIBTORCH yes
headers=$(bazel query --output=build @libtorch//:libtorch)
if [[ $headers == *package/$api/torch.h* && $headers != *dnnl* ]]; then
  echo "PASSED: libtorch's own headers are linked, and not those of oneDNN beside them"
else
  echo "FAILED: libtorch's own headers are linked, and not those of oneDNN beside them"; printf '%s\n' "$headers"; failed=1
fi
echo 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")' > "$work/torch/share/cmake/Torch/TorchConfig.cmake"
given=(CHORALE_LIBTORCH="$work/torch/")                     # another text, so that the rule is run again
check "built with the old ABI" libtorch CHORALE_HAVE_LIBTORCH no
given=(CHORALE_LIBTORCH="$work/nowhere")
if said=$(bazel query @libtorch//:libtorch 2>&1) || [[ $said != *"has no include/torch/csrc"* ]]; then
  echo "FAILED: a folder without libtorch is refused: $said"; failed=1
else
  echo "PASSED: a folder without libtorch is refused in one sentence"
fi

# oneDNN: the system's, or that of a folder, whose library is linked; a folder without it is refused.
for folder in usr onednn; do
  mkdir -p "$work/$folder/include/oneapi/dnnl" "$work/$folder/lib"
  touch "$work/$folder/include/dnnl.h" "$work/$folder/include/dnnl.hpp" "$work/$folder/lib/libdnnl.so"
done
linked() {  # linked WHEN TEXT yes|no
  local target answer=no
  target=$(bazel query --output=build @onednn//:onednn)
  [[ $target != *"$2"* ]] || answer=yes
  if [[ $answer == "$3" ]]; then echo "PASSED: oneDNN $1: $2 is linked: $3"
  else echo "FAILED: oneDNN $1: $2 is linked: $answer"; printf '%s\n' "$target"; failed=1; fi
}
given=()
linked "of the system" rpath no
given=(CHORALE_ONEDNN="$work/onednn")
linked "of the folder in CHORALE_ONEDNN" "rpath,$work/onednn/lib" yes
given=(CHORALE_ONEDNN="$work/nowhere")
if said=$(bazel query @onednn//:onednn 2>&1) || [[ $said != *"nowhere/include/dnnl.h is missing"* ]]; then
  echo "FAILED: a folder without oneDNN is refused: $said"; failed=1
else
  echo "PASSED: a folder without oneDNN is refused in one sentence"
fi
exit $failed
