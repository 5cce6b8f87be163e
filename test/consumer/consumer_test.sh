#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A workspace of tools/new, which is not this one, loads chorale, builds a program with @chorale//:chorale, and trains.
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

"$chorale/tools/new" "$consumer/workspace" --bazel
if bazel test --noshow_progress //:trains; then
  echo "PASSED: the workspace that tools/new makes builds a program with @chorale//:chorale, which learns"
else
  echo "FAILED: the workspace that tools/new makes builds a program with @chorale//:chorale, which learns"
  exit 1
fi
