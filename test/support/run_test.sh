#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_test.sh PROGRAM: a program that checks its own results ends with 0.
set -u
if output=$("$1" 2>&1); then
  echo "PASSED: $(basename "$1"): $output"
else
  echo "FAILED: $(basename "$1") ended with $?: $output"
  exit 1
fi
