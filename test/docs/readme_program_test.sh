#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# readme_program_test.sh PROGRAM: the program of README.md, without data: one sentence says where they are; exit code 2.
set -u
said=$("$1" absent/mnist 2>&1)
code=$?
expected="chorale: absent/mnist: is not a folder.
         Try: the folder with MNIST's four files, which https://"
if [[ $code == 2 && $said == "$expected"* && $(wc -l <<< "$said") == 2 ]]; then
  echo "PASSED: the program of README.md says where its data are"
else
  echo "FAILED: the program of README.md ended with $code: $said"
  exit 1
fi
