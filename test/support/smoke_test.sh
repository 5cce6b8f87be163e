#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# smoke_test.sh PROGRAM: a tiny run ends with the test's loss and accuracy; bad input ends with 2 and one sentence.
set -u
program=$(readlink -f "$1")
cd "$TEST_TMPDIR" || exit 1                                # for what it writes
name=$(basename "$program")
failed=0

verdict() {  # verdict RC WHAT
  if [[ $1 == 0 ]]; then echo "PASSED: $name $2"; else echo "FAILED: $name $2"; failed=1; fi
}

trains() {
  local out last
  out=$("$program" --epochs 1 --rows 640 --replicas 1) || return 1
  last=$(tail -n 1 <<< "$out")
  [[ $last =~ ^test:\ loss\ [0-9.]+\ accuracy\ [0-9.]+\ \([0-9]+\ images\)$ ]] || { echo "last line: $last"; return 1; }
}

refuses() {  # refuses ARGS...
  local sentence rc
  sentence=$("$program" --epochs 1 --rows 640 "$@" 2>&1 > /dev/null)
  rc=$?
  [[ $rc == 2 && $sentence == "chorale: "* && $sentence != *"chorale: "*"chorale: "* ]] && return
  echo "exit code $rc (wanted 2), standard error: $sentence"
  return 1
}

trains; verdict $? "trains for an epoch and prints the test's loss and accuracy"
refuses --replicas 0; verdict $? "refuses --replicas 0"
refuses --replicas 1 --data "$TEST_TMPDIR/missing"; verdict $? "refuses a folder of data that is missing"
exit $failed
