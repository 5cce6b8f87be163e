#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# headers_test.sh FOLDER FLAGS...: every header of include/chorale/FOLDER compiles alone, without a warning.
# FOLDER is "." for the headers beside the folders.
folder=$1
shift
export flags="$*"

alone() {
  local name=${1#include/} said
  if said=$(g++ -std=c++20 $flags -Werror -I include -fsyntax-only -x c++ - <<< "#include <$name>" 2>&1); then
    echo "PASSED: $name compiles alone"
  else
    printf '%s\nFAILED: %s compiles alone\n' "$said" "$name"
    return 1
  fi
}
export -f alone

headers=$(find -L "include/chorale/$folder" -maxdepth 1 -name '*.hpp' | sed 's,/\./,/,' | sort)
[[ -n $headers ]] || echo "NONE: there is no header in include/chorale/$folder"
xargs --no-run-if-empty --max-procs="$(nproc)" -I{} bash -c 'alone {}' <<< "$headers"
